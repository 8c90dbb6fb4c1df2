/* What the files of codegen share: text helpers and the makers of single emitted files. All text is
 * built in memory and depends on the plan alone. */
#ifndef PPC_CODEGEN_PARTS_H
#define PPC_CODEGEN_PARTS_H

#include "codegen/emit.h"

enum { EMIT_COLUMNS = 100 };
#define EMIT_IN_WINDOW (UINT64_C(1) << 63) /* of an argument's offset */

/* --- text.c ------------------------------------------------------------------------------------ */

/* Takes the text of `str` (and frees it) as a file; `path` is copied. */
void emit_add(Arena *arena, EmitFiles *files, const char *path, Str *str);
/* "float", "double", "int32_t", "uint8_t" (bool), "uint16_t" (bf16). */
const char *emit_c_type(pp_dtype dtype);
/* Whether a name from the model might be a macro, a type or something of ours in emitted code: not the words of C and C++,
 * which each place lists with what else it uses. */
bool emit_may_be_taken(const char *name);
/* "PP_F32" … */
const char *emit_dtype(pp_dtype dtype);
/* "PP_FWD" …, and for people "fwd" … */
const char *emit_kind(pp_task_kind kind);
/* "PP_ARENA", "PP_WINDOW" */
const char *emit_space(pp_space space);
/* "[4, 128]"; "[]" for a scalar. */
void emit_shape(Str *out, const PlanType *type);
/* A C string literal, or NULL. */
void emit_string(Str *out, const char *text);
/* Text for the inside of a comment: no comment end, no line breaks. */
void emit_comment(Str *out, const char *text);
/* A whole comment from the current column on, broken at blanks so that it stays within EMIT_COLUMNS. */
void emit_wrapped_comment(Str *out, const char *text);
/* "1,234,567" */
void emit_grouped(Str *out, uint64_t value);
/* The column after the last line break. */
int emit_column(const Str *out);
/* Blanks up to `column`, at least one. */
void emit_to_column(Str *out, int column);

/* A call whose arguments are broken at EMIT_COLUMNS:
 * emit_call_start(&call, out, "f"); emit_call_arg(&call, "%d", 1); …; emit_call_end(&call). */
typedef struct {
  Str *out;
  int indent, n;
} EmitCall;
void emit_call_start(EmitCall *call, Str *out, const char *name);
void emit_call_arg(EmitCall *call, const char *format, ...) __attribute__((format(printf, 2, 3)));
void emit_call_end(EmitCall *call);

/* --- task.c ------------------------------------------------------------------------------------ */

/* stage_K.h: the frames and the tasks' declarations. stage_K.c, the tasks: emit_stage_source in target.h. */
void emit_stage_header(Arena *arena, const Plan *plan, const PlanStage *stage, EmitFiles *files);

/* --- lives.c: lifetimes over a rank's points, for checking builds (pp_life in runtime/pp.h) -------- */

typedef struct {
  uint32_t point, end; /* live from `point` until before `end` */
  pp_space space;
  uint64_t offset, size_bytes;
  const char *name;
} EmitLife;
typedef VEC(EmitLife) EmitLives;

/* `always`: live in all steps, sorted by place. `lives`: the rest, sorted by place and point. */
void emit_lives(Arena *arena, const Plan *plan, const PlanRank *rank, EmitLives *always, EmitLives *lives);

/* --- plan_json.c: the only user of jansson in codegen ------------------------------------------------ */

/* `target`: "cpu"; `products`: the library of the matrix products. */
void emit_plan_json(Arena *arena, const Plan *plan, const char *target, const char *products, EmitFiles *files);

/* --- launch.c ------------------------------------------------------------------------------------- */

/* launch.sh, mpmd.conf, mpiexec.conf. `setup`: lines of launch.sh behind `here=…`, the folder of the programs;
 * `variables`: "NAME=VALUE " of rank $rank. */
void emit_launch_files(Arena *arena, const Plan *plan, const char *setup, const char *variables, EmitFiles *files);
/* Parts of a Makefile: a variable with the files that are taken; PROGRAMS and `all`; what each program is linked from. */
void emit_list(Str *out, const char *name, const EmitFiles *files, bool (*takes)(const char *path));
void emit_programs(Str *out, const Plan *plan);
void emit_prerequisites(Str *out, const Plan *plan);
bool emit_is_of_one_rank(const char *path);

/* --- c/build_files.c ------------------------------------------------------------------------------ */

/* Makefile, threads.c, launch.sh, mpmd.conf, README.md. `files` already has the runtime's sources. */
void emit_build_files(Arena *arena, const Plan *plan, EmitFiles *files);

/* --- build/codegen/runtime_files.c, made by embed.sh ------------------------------------------------- */

typedef struct {
  const char *path; /* "runtime/pp.h" */
  const char *text;
  size_t size;
} EmbeddedFile;
extern const EmbeddedFile codegen_runtime_files[];
extern const int codegen_runtime_file_count;

#endif
