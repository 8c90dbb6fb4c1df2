/* ppc: the commands. Each is a function from options to a status; everything they print on stdout is their
 * result, diagnostics go to stderr. A fault of ppc itself (a failed assertion, a bad access, a stack that
 * ran over) ends with one line and status 3. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/emit.h"
#include "compiler/driver/bare.h"
#include "compiler/driver/options.h"
#include "compiler/driver/output.h"
#include "compiler/driver/pipeline.h"
#include "compiler/driver/run.h"
#include "compiler/driver/simulate.h"
#include "compiler/report.h"
#include "compiler/schedule_csv.h"
#include "dsl/ast.h"

typedef struct {
  Arena *arena;
  Diag *diag;
  const Options *options;
} Driver;

static int complain(const char *text) {
  fprintf(stderr, "ppc: %s\n", text);
  return STATUS_INPUT;
}

/* --- check ----------------------------------------------------------------------------------------------- */

static int check(const Driver *d) {
  if (bare_is_wanted(d->options)) return simulate_check_schedule(d->arena, d->diag, d->options);
  if (bare_refuse_options(d->diag, d->options)) return STATUS_INPUT;
  Pipeline p = {.arena = d->arena, .diag = d->diag, .without_events = true};
  bool fine = pipeline_run(&p, d->options->files.at[0], &d->options->compile, NULL);
  pipeline_destroy(&p);
  diag_flush(d->diag);
  if (!fine) return STATUS_INPUT;
  Str out = {0};
  ReportEstimate step = {0}, *estimate = p.plan->generate ? NULL : &step;
  if (estimate) step = simulate_estimate(d->arena, d->diag, d->options, p.plan);
  if (d->options->json) report_json(p.plan, estimate, &out);
  else report_text(p.plan, estimate, &out);
  fwrite(str_text(&out), 1, out.length, stdout);
  str_free(&out);
  return STATUS_FINE;
}

/* --- compile: emitted programs, the sources, the IR of each stage -------------------------------------------- */

static void add_file(Arena *arena, EmitFiles *files, const char *path, const char *text, size_t size) {
  VEC_PUSH(arena, files, (EmitFile){path, text, size, false});
}

static bool has_file(const EmitFiles *files, const char *path) {
  for (int i = 0; i < files->n; i++)
    if (strcmp(files->at[i].path, path) == 0) return true;
  return false;
}

/* All files that were read, under their own names; two of one name get numbers. */
static void add_sources(const Driver *d, EmitFiles *files) {
  for (int i = 0; i < diag_source_count(d->diag); i++) {
    const char *name = diag_source_name(d->diag, i), *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name;
    if (i > 0 && (name[0] == '-' || !base[0])) continue; /* an option's text */
    char *text = arena_strndup(d->arena, diag_source_text(d->diag, i), diag_source_length(d->diag, i));
    bool named = str_ends_with(base, ".pp") || str_ends_with(base, ".csv");
    const char *path = arena_printf(d->arena, "source/%s%s", base, named ? "" : ".pp");
    for (int k = 2; has_file(files, path); k++) path = arena_printf(d->arena, "source/%d_%s", k, base);
    add_file(d->arena, files, path, text, diag_source_length(d->diag, i));
    if (i == 0) add_file(d->arena, files, "model.pp", text, diag_source_length(d->diag, i));
  }
}

static bool is_stage_module(Arena *arena, Op op) {
  const char *name = op_string(arena, op, "sym_name");
  return !op_is_func(op) && name && str_starts_with(name, "stage_");
}

/* The tasks of each stage in the form for people. */
static void add_ir(const Driver *d, const Pipeline *p, EmitFiles *files) {
  OpVec ops = block_ops(d->arena, ir_body(p->ir));
  for (int i = 0; i < ops.n; i++) {
    char *text = NULL;
    size_t size = 0;
    if (!is_stage_module(d->arena, ops.at[i])) continue;
    FILE *f = open_memstream(&text, &size);
    if (!f) bug("no memory for the IR's text");
    ir_print_pretty(f, p->ir, ops.at[i], (PrettyOptions){.stage = -1, .rank = -1});
    fclose(f);
    const char *path = arena_printf(d->arena, "ir/stage_%d.ir", op_stage(ops.at[i]));
    add_file(d->arena, files, path, arena_strndup(d->arena, text, size), size);
    free(text);
  }
}

/* The plan's files; false after errors. */
static bool emit(const Driver *d, EmitFiles *files, const Plan **out_plan) {
  Pipeline p = {.arena = d->arena, .diag = d->diag};
  bool fine = pipeline_run(&p, d->options->files.at[0], &d->options->compile, NULL);
  if (fine) {
    bug_set_pass("emit");
    emit_program(d->arena, p.plan, files);
    add_sources(d, files);
    add_ir(d, &p, files);
    bug_set_pass(NULL);
  }
  *out_plan = p.plan;
  pipeline_destroy(&p);
  diag_flush(d->diag);
  return fine;
}

static int compile(const Driver *d) {
  EmitFiles files = {0};
  const Plan *plan;
  Str error = {0};
  if (!emit(d, &files, &plan)) return STATUS_INPUT;
  bool fine = output_write(d->arena, &files, d->options->output, &error);
  if (!fine) complain(str_text(&error));
  str_free(&error);
  return fine ? STATUS_FINE : STATUS_INPUT;
}

/* --- run --------------------------------------------------------------------------------------------------------- */

/* The file that an option of the programs writes, or null. */
static const char *written_by(const char *argument) {
  static const char *const options[] = {"--save=", "--save-gradients=", "--trace="};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    if (str_starts_with(argument, options[i])) return argument + strlen(options[i]);
  return NULL;
}

/* What the programs write must not take the place of the source, which they don't know. */
static bool spares_source(const Driver *d) {
  const Options *o = d->options;
  const char *schedule = schedule_is_csv(o->compile.schedule) ? o->compile.schedule : NULL;
  for (int i = 0; i < o->run_arguments.n; i++) {
    const char *path = written_by(o->run_arguments.at[i]);
    if (!path) continue;
    if (!output_is_one_file(path, o->files.at[0]) && !(schedule && output_is_one_file(path, schedule))) continue;
    fprintf(stderr, "ppc: %s: this file is read; name another\n", o->run_arguments.at[i]);
    return false;
  }
  return true;
}

static int run(const Driver *d) {
  EmitFiles files = {0};
  const Plan *plan;
  bool temporary;
  if (!spares_source(d)) return STATUS_INPUT;
  if (!emit(d, &files, &plan)) return STATUS_INPUT;
  const char *dir = build_program(d->arena, &files, d->options, &temporary);
  if (!dir) return STATUS_FAILED;
  if (d->options->keep) fprintf(stderr, "ppc: the programs are in %s\n", dir);
  int status = run_ranks(d->arena, dir, plan->n_ranks, &d->options->run_arguments);
  if (temporary) output_remove(dir);
  return status;
}

/* --- dump ---------------------------------------------------------------------------------------------------------- */

static int check_pass_name(const char *name) {
  StrGuess guess = str_guess_start(name);
  for (int i = 0; pipeline_passes[i]; i++) {
    if (strcmp(pipeline_passes[i], name) == 0) return STATUS_FINE;
    str_guess_try(&guess, pipeline_passes[i]);
  }
  fprintf(stderr, "ppc: --after=%s: no such pass%s%s%s (see ppc dump --help)\n", name, guess.best ? "; did you mean '" : "",
          guess.best ? guess.best : "", guess.best ? "'?" : "");
  return STATUS_USAGE;
}

static Op find_stage(const Driver *d, Ir *ir) {
  OpVec ops = block_ops(d->arena, ir_body(ir));
  for (int i = 0; i < ops.n; i++)
    if (is_stage_module(d->arena, ops.at[i]) && op_stage(ops.at[i]) == d->options->stage) return ops.at[i];
  complain("stages are modules only after split; --pretty shows one before that");
  return (Op){0};
}

static Op find_rank(const Driver *d, Ir *ir) {
  OpVec ranks = ir_ops(d->arena, ir_top(ir), OP_RANK);
  for (int i = 0; i < ranks.n; i++)
    if (op_int(ranks.at[i], "rank", -1) == d->options->rank) return ranks.at[i];
  complain("ranks appear after schedule");
  return (Op){0};
}

/* The op to print; null with a message when the stage or rank isn't there. */
static Op choose_op(const Driver *d, Ir *ir) {
  const Options *o = d->options;
  Op top = ir_top(ir), none = {0};
  if (o->stage >= 0 && o->stage >= op_int(top, "pp.stages", 0)) {
    fprintf(stderr, "ppc: --stage=%lld: the model has %lld stages\n", (long long)o->stage, (long long)op_int(top, "pp.stages", 0));
    return none;
  }
  if (o->rank >= 0 && o->rank >= op_int(top, "pp.ranks", 0)) {
    fprintf(stderr, "ppc: --rank=%lld: the job has %lld ranks\n", (long long)o->rank, (long long)op_int(top, "pp.ranks", 0));
    return none;
  }
  if (o->pretty || (o->stage < 0 && o->rank < 0)) return top;
  return o->stage >= 0 ? find_stage(d, ir) : find_rank(d, ir);
}

static int print_dump(const Driver *d, Ir *ir) {
  const Options *o = d->options;
  Op op = choose_op(d, ir);
  if (op_is_null(op)) return STATUS_INPUT;
  if (o->pretty) ir_print_pretty(stdout, ir, op, (PrettyOptions){.stage = (int)o->stage, .rank = (int)o->rank});
  else ir_print(stdout, ir, op, o->locations);
  return STATUS_FINE;
}

static void print_csv(const Driver *d, const ScheduledActions *list, int n_ranks) {
  Str out = {0};
  schedule_csv_write(d->diag, list, n_ranks, &out);
  fwrite(str_text(&out), 1, out.length, stdout);
  str_free(&out);
}

static int print_schedule_csv(const Driver *d, Pipeline *p) {
  ScheduledActions list = {0};
  Op top = ir_top(p->ir);
  int n_ranks = (int)op_int(top, "pp.ranks", 1);
  bool ran = program_run_schedule(p->program, n_ranks, (int)op_int(top, "pp.stages", 1),
                                  (int)op_int(top, "pp.microbatches", 1), &list);
  if (ran) print_csv(d, &list, n_ranks);
  return ran ? STATUS_FINE : STATUS_INPUT;
}

/* Of a schedule without a model. */
static int print_bare_csv(const Driver *d) {
  Bare bare;
  if (!bare_read(d->arena, d->diag, d->options, &bare)) return STATUS_INPUT;
  print_csv(d, &bare.actions, bare.job.n_ranks);
  return STATUS_FINE;
}

static int dump(const Driver *d) {
  const Options *o = d->options;
  if (o->irdl) {
    ir_print_irdl(stdout);
    return STATUS_FINE;
  }
  const char *last = o->format == FORMAT_CSV ? "schedule" : o->after ? o->after : "events";
  if (o->format == FORMAT_CSV && bare_is_wanted(o)) return print_bare_csv(d);
  int status = check_pass_name(last);
  if (status != STATUS_FINE) return status;
  if (bare_refuse_options(d->diag, o)) return STATUS_INPUT;
  Pipeline p = {.arena = d->arena, .diag = d->diag};
  bool fine = pipeline_run(&p, o->files.at[0], &o->compile, last);
  if (!fine) status = STATUS_INPUT;
  else status = o->format == FORMAT_CSV ? print_schedule_csv(d, &p) : print_dump(d, p.ir);
  pipeline_destroy(&p);
  return status;
}

/* --- simulate ------------------------------------------------------------------------------------------------------- */

static int simulate(const Driver *d) { return simulate_command(d->arena, d->diag, d->options); }

/* --- fmt ------------------------------------------------------------------------------------------------------------- */

static int put_formatted(const Driver *d, const char *path, const char *text, size_t size, const Str *formatted) {
  bool same = formatted->length == size && memcmp(str_text(formatted), text, size) == 0;
  Str error = {0};
  int status = STATUS_FINE;
  if (d->options->check) {
    if (!same) printf("%s\n", path);
    return same ? STATUS_FINE : STATUS_INPUT;
  }
  if (!d->options->write) fwrite(str_text(formatted), 1, formatted->length, stdout);
  else if (!same && !output_write_file(path, formatted->text, formatted->length, &error)) status = complain(str_text(&error));
  str_free(&error);
  return status;
}

static int format_file(const Driver *d, const char *path) {
  Str error = {0}, formatted = {0};
  size_t size = 0;
  const char *text = output_read_file(d->arena, path, &size, &error);
  if (!text) {
    complain(str_text(&error));
    str_free(&error);
    return STATUS_INPUT;
  }
  int status = STATUS_INPUT;
  int source = diag_add_source_bytes(d->diag, strcmp(path, "-") == 0 ? "<stdin>" : path, text, size);
  const AstFile *file = dsl_parse(d->arena, d->diag, source);
  if (file) {
    dsl_print(file, &formatted);
    status = put_formatted(d, path, text, size, &formatted);
  }
  str_free(&formatted);
  return status;
}

static int fmt(const Driver *d) {
  int status = STATUS_FINE;
  for (int i = 0; i < d->options->files.n; i++) {
    diag_start_phase(d->diag);
    int one = format_file(d, d->options->files.at[i]);
    if (one != STATUS_FINE) status = one;
  }
  return status;
}

/* --- faults of ppc ------------------------------------------------------------------------------------------------------ */

static void say(const char *text) {
  ssize_t ignored = write(2, text, strlen(text));
  (void)ignored;
}

/* bug() and failed assertions have told what happened before they abort. */
static void on_fault(int number) {
  if (number != SIGABRT) {
    const char *pass = bug_pass();
    say("ppc: internal error");
    if (pass) say(" in pass "), say(pass);
    say(number == SIGSEGV || number == SIGBUS ? ": bad memory access or stack overflow" : ": fatal signal");
    say("; this is a fault of ppc, not of its input\n");
  }
  _exit(STATUS_FAULT);
}

/* On a stack of its own, for the fault may be that the stack ran over. A sanitizer does better. */
static void install_fault_handler(void) {
#ifndef __SANITIZE_ADDRESS__
  static char stack[65536];
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  stack_t alternative = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK | SA_RESETHAND};
  sigaltstack(&alternative, NULL);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigaction(faults[i], &action, NULL);
#endif
}

/* --- main ------------------------------------------------------------------------------------------------------------------ */

static int run_command(const Driver *d) {
  static int (*const commands[])(const Driver *) = {check, compile, run, dump, simulate, fmt};
  _Static_assert(sizeof commands / sizeof *commands == COMMAND_COUNT, "one function per command");
  int status = commands[d->options->command](d);
  diag_flush(d->diag);
  if (status == STATUS_FINE && diag_error_count(d->diag) > 0) status = STATUS_INPUT;
  return status;
}

int main(int argc, char **argv) {
  install_fault_handler();
  Options options;
  Driver d = {.arena = arena_create(), .diag = diag_create(), .options = &options};
  int status = options_parse(d.arena, argc, argv, &options);
  if (status == STATUS_FINE && options.command < COMMAND_COUNT) {
    diag_set_color(d.diag, options_want_color(&options, STDERR_FILENO));
    status = run_command(&d);
  }
  if (fflush(stdout) != 0 || ferror(stdout)) {
    fprintf(stderr, "ppc: cannot write to standard output: %s\n", strerror(errno));
    if (status == STATUS_FINE) status = STATUS_INPUT;
  }
  diag_destroy(d.diag);
  arena_destroy(d.arena);
  return status;
}
