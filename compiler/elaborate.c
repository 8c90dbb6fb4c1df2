/* AST → IR: sets the evaluator up, reads what the command line defines, runs
 * `train`.
 *
 * In: a resolved program and options. Out: the module as docs/ir.md describes
 * it after `elaborate`, and a Program for the schedule to be run later. `-D
 * NAME=VALUE` and `--schedule` are parsed as expressions of the language; a -D
 * replaces the const's value before anything is evaluated. */
#include <string.h>
#include <sys/resource.h>

#include "compiler/eval.h"
#include "compiler/schedule_csv.h"

static const int64_t max_steps = 1000000000, max_ops = 1000000;
static const size_t max_bytes = (size_t)1 << 30;

/* How much C stack the walker may use: most of what there is. */
static size_t stack_room(void) {
  struct rlimit limit;
  size_t most = (size_t)256 << 20;
  if (getrlimit(RLIMIT_STACK, &limit) != 0) return (size_t)4 << 20;
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < most)
    most = limit.rlim_cur;
  return most / 4 * 3;
}

static void index_items(Eval *e) {
  e->file_scopes =
      eval_alloc(e, (size_t)e->program->files.n * sizeof *e->file_scopes);
  for (int i = 0; i < e->program->files.n; i++) {
    const AstFile *file = e->program->files.at[i];
    e->file_scopes[i] = scope_push(e, NULL);
    e->file_scopes[i]->file = file;
    e->file_scopes[i]->captured = true;
    for (int k = 0; k < file->items.n; k++) {
      AstItem *item = file->items.at[k];
      if (item->kind == ITEM_USE || item->kind == ITEM_TRAIN) continue;
      VEC_PUSH(e->arena, &e->items, (ItemState){.item = item});
      ptrmap_put(e->arena, &e->item_index, item, (void *)(intptr_t)e->items.n);
    }
  }
}

static void eval_start(Eval *e, Ir *ir, const DslProgram *program,
                       const CompileOptions *options) {
  *e = (Eval){.ir = ir,
              .diag = ir_diag(ir),
              .arena = ir_arena(ir),
              .program = program,
              .options = options};
  e->step_limit = options->step_limit > 0 ? options->step_limit : max_steps;
  e->byte_limit = max_bytes;
  e->op_limit = max_ops;
  e->stack_base = __builtin_frame_address(0);
  e->stack_limit = stack_room();
  e->values = arena_alloc_array(e->arena, EVAL_STACK_VALUES, sizeof *e->values);
  e->training = !options->generate;
  e->clip.kind = VAL_UNSET;
  e->n_sources = diag_source_count(e->diag);
  index_items(e);
}

/* --- the command line --- */

/* Parses `value` as one expression; NULL after an error. */
static const AstExpr *parse_value(Eval *e, const char *source,
                                  const char *value) {
  int file = diag_add_source(e->diag, source, value);
  return dsl_parse_expr(e->arena, e->diag, (Map *)&e->program->names, file);
}

static void guess_consts(StrGuess *guess, const AstFile *file) {
  for (int i = 0; i < file->items.n; i++) {
    const AstItem *item = file->items.at[i];
    if (item->kind == ITEM_CONST) str_guess_try(guess, item->name);
    if (item->kind == ITEM_USE && item->use)
      for (int k = 0; k < item->use->items.n; k++)
        if (item->use->items.at[k]->kind == ITEM_CONST)
          str_guess_try(guess, item->use->items.at[k]->name);
  }
}

static bool define_const(Eval *e, const Define *define) {
  AstItem *item = dsl_find_item(e->program->main, define->name);
  if (!item || item->kind != ITEM_CONST) {
    diag_error(e->diag, (Loc){0}, "-D %s: '%s' has no const of that name",
               define->name, e->program->main->path);
    if (item)
      diag_note(e->diag, item->name_loc, "'%s' is declared here", define->name);
    StrGuess guess = str_guess_start(define->name);
    guess_consts(&guess, e->program->main);
    if (!item && guess.best)
      diag_note(e->diag, dsl_find_item(e->program->main, guess.best)->name_loc,
                "did you mean '%s'?", guess.best);
    return false;
  }
  const AstExpr *expr =
      parse_value(e, eval_printf(e, "-D %s", define->name), define->value);
  int index = (int)(intptr_t)ptrmap_get(&e->item_index, item) - 1;
  e->items.at[index].override = expr;
  return expr != NULL;
}

static void read_train(Program *p) {
  const AstTrainEntry *entry = ast_train_find(p->train, "schedule");
  p->schedule_expr = entry->args.at[0].value;
  p->schedule_loc = ast_expr_start(p->schedule_expr);
  p->ranks_loc = ast_train_find(p->train, "ranks")->args.at[0].loc;
}

static bool read_command_line(Program *p) {
  Eval *e = &p->e;
  bool ok = true;
  for (int i = 0; i < e->options->n_defines; i++)
    ok = define_const(e, &e->options->defines[i]) && ok;
  if (p->train) read_train(p);
  if (schedule_is_csv(e->options->schedule)) {
    p->csv = schedule_csv_read(e->diag, e->arena, e->options->schedule);
    if (!p->csv) return false;
    p->schedule_loc = (Loc){p->csv->source, 1, 1};
  } else if (e->options->schedule) {
    p->schedule_expr = parse_value(e, "--schedule", e->options->schedule);
    if (p->schedule_expr) p->schedule_loc = ast_expr_start(p->schedule_expr);
  }
  return ok && p->schedule_expr;
}

/* Every const is evaluated, used or not: an error in one is not put off. */
static void run_consts(Eval *e) {
  for (int i = 0; i < e->items.n && !e->fatal; i++) {
    const AstItem *item = e->items.at[i].item;
    if (item->kind != ITEM_CONST) continue;
    e->stop = false;
    eval_item(e, item, item->name_loc);
  }
  eval_flush_notes(e);
  e->stop = e->fatal;
}

static bool has_schedule(const AstFile *file) {
  for (int i = 0; i < file->items.n; i++)
    if (file->items.at[i]->kind == ITEM_SCHEDULE) return true;
  return false;
}

Program *elaborate_run(Ir *ir, const DslProgram *program,
                       const CompileOptions *options) {
  Diag *diag = ir_diag(ir);
  int errors = diag_error_count(diag);
  bug_set_pass("elaborate");
  if (!program->train) {
    diag_error(diag, (Loc){program->main->file_index, 1, 1},
               "this file has no 'train { … }': it can only be used by others");
    if (has_schedule(program->main))
      diag_note(diag, (Loc){0},
                "a schedule of it alone: --schedule=NAME --ranks=N "
                "--microbatches=N, for check and simulate");
    return NULL;
  }
  Program *p = arena_alloc(ir_arena(ir), sizeof *p);
  eval_start(&p->e, ir, program, options);
  p->train = program->train;
  if (!read_command_line(p)) return NULL;
  bool ok = train_run(p);
  eval_flush_notes(&p->e);
  if (!p->e.fatal) run_consts(&p->e);
  return ok && diag_error_count(diag) == errors ? p : NULL;
}

Program *elaborate_schedule(Ir *ir, const DslProgram *program,
                            const CompileOptions *options) {
  Diag *diag = ir_diag(ir);
  int errors = diag_error_count(diag);
  bug_set_pass("elaborate");
  Program *p = arena_alloc(ir_arena(ir), sizeof *p);
  eval_start(&p->e, ir, program, options);
  if (!read_command_line(p)) return NULL;
  p->ranks_loc = p->schedule_loc;
  bool ok = train_run_schedule(p);
  eval_flush_notes(&p->e);
  if (!p->e.fatal) run_consts(&p->e);
  return ok && diag_error_count(diag) == errors ? p : NULL;
}

bool program_is_spent(Program *program) {
  return program->e.fatal;
}
Loc program_refusal(Program *program) {
  return program->e.refused;
}
const ScheduleCsv *program_csv(Program *program) {
  return program->csv;
}
bool program_keeps_transfers(Program *program) {
  return program->e.options->keep_transfers;
}
const char *program_schedule_name(Program *program) {
  if (!program->csv) return program->e.schedule->item->name;
  const char *path = program->e.options->schedule, *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}
Loc program_schedule_loc(Program *program) {
  return program->schedule_loc;
}
Loc program_ranks_loc(Program *program) {
  return program->ranks_loc;
}
