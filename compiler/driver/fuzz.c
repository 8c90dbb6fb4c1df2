/* Fuzzes the compiler in one process with mutated programs.
 *
 *   fuzz INPUTS [SEED [FIRST]]
 *
 * In: the models, tests and library files of this tree, relative to the working folder. Each input is one of them,
 * changed a few times by bytes, words, numbers or lines; it depends on SEED and its number alone, so that
 * `fuzz 1 SEED NUMBER` runs one again. An input is parsed, printed and parsed again (the same tree, the same text),
 * then goes through all passes to the plan, its report and the emitted files, all in memory. Some inputs are
 * schedules as CSV: read, and what is read is written and read again. Whether an input is accepted does not matter: the compiler must neither crash, hang nor leak. Meant for -fsanitize=address,undefined (`make fuzz`).
 *
 * Batches run in children, with a leak check at the end of each; a batch that leaks is run again one by one. What
 * fails is saved as build/fuzz/NUMBER.pp. One line is printed: "ok fuzz: …" or "FAIL fuzz: …".
 * It does not build or run emitted programs, nor read data files. */
#include <glob.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codegen/emit.h"
#include "compiler/driver/pipeline.h"
#include "compiler/report.h"
#include "compiler/simulate.h"
#include "compiler/stated.h"
#include "dsl/load.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>

const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "exitcode=99:handle_abort=1:detect_stack_use_after_return=0:leak_check_at_exit=0:allocator_may_return_null=0";
}

const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void) {
  return "exitcode=99:print_stacktrace=1";
}
#endif

enum { BATCH = 250, SECONDS = 10, STEPS = 30000, MAX_BYTES = 1 << 16 };

/* --- random numbers ------------------------------------------------------------------------------------- */

static uint64_t random_state;

static uint32_t random_below(uint32_t n) { /* splitmix64 */
  uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return n ? (uint32_t)((z ^ (z >> 31)) % n) : 0;
}

static bool one_in(uint32_t n) {
  return random_below(n) == 0;
}

/* --- the input that runs -------------------------------------------------------------------------------- */

static struct {
  char path[64];
  Str text;
  volatile long *number; /* shared with the parent, which says what failed */
} current;

static void fail_current(const char *what) {
  FILE *file = fopen(current.path, "wb");
  if (file) {
    fwrite(str_text(&current.text), 1, current.text.length, file);
    fclose(file);
  }
  printf("FAIL fuzz: %s: %s\n", current.path, what);
}

enum { ENDED_WELL, ENDED_LEAKING, ENDED_LATE, ENDED_TOLD, ENDED_BADLY };

static void on_alarm(int number) {
  (void)number;
  const char *pass = bug_pass() ? bug_pass() : "", *text = "fuzz: still in ";
  ssize_t ignored = write(2, text, strlen(text));
  ignored = write(2, pass, strlen(pass));
  ignored = write(2, "\n", 1);
  (void)ignored;
  _exit(ENDED_LATE);
}

/* Seconds of the processor, for the machine may be busy; 0: none. */
static void set_alarm(int seconds) {
  struct itimerval timer = {.it_value.tv_sec = seconds};
  setitimer(ITIMER_PROF, &timer, NULL);
}

static bool leaked(void) {
#ifdef __SANITIZE_ADDRESS__
  return __lsan_do_recoverable_leak_check() != 0;
#else
  return false;
#endif
}

/* --- seeds ---------------------------------------------------------------------------------------------- */

typedef struct {
  const char *path, *text;
  size_t length;
} Seed;
typedef VEC(Seed) SeedVec;
typedef struct {
  SeedVec programs, errors; /* mostly accepted, all refused */
  SeedVec tables;           /* schedules as CSV */
} Seeds;

static void read_seed(Arena *arena, SeedVec *seeds, const char *path) {
  FILE *stream = fopen(path, "rb");
  if (!stream) return;
  char *text = arena_alloc(arena, MAX_BYTES);
  size_t length = fread(text, 1, MAX_BYTES, stream);
  fclose(stream);
  VEC_PUSH(arena, seeds, (Seed){arena_strdup(arena, path), text, length});
}

static void read_folder(Arena *arena, SeedVec *seeds, const char *pattern) {
  glob_t found;
  if (glob(pattern, 0, NULL, &found) == 0)
    for (size_t k = 0; k < found.gl_pathc; k++) read_seed(arena, seeds, found.gl_pathv[k]);
  globfree(&found);
}

static void read_seeds(Arena *arena, Seeds *seeds) {
  static const char *const programs[] = {"testdata/models/*.pp",    "testdata/language/*.pp", "testdata/passes/*.pp",
                                         "testdata/schedules/*.pp", "testdata/field/*.pp",    "dsl/lib/*.pp"};
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) read_folder(arena, &seeds->programs, programs[i]);
  read_folder(arena, &seeds->errors, "testdata/errors/*.pp");
  read_folder(arena, &seeds->tables, "testdata/csv/*.csv");
}

static const Seed *pick_seed(const Seeds *seeds) {
  const SeedVec *from = one_in(4) ? &seeds->errors : &seeds->programs;
  return &from->at[random_below((uint32_t)from->n)];
}

/* --- mutations ------------------------------------------------------------------------------------------ */

static const char *const words[] = {
    "let", "fn", "(", ")", "{", "}", "[", "]", ";", ",", "..", "=", "==", "<", "+", "-", "*", "/", "@", "?", ":", ".", "not",
    "and", "or", "if ", "else", "for i in 0..3 ", "while true ", "in", "\"text\"", "\"", "// note\n", "/* note */", "/*", "\n",
    "return ", "param p: [d] = ones;", "state s = zeros;", "output", "rank r ", "overlap { fwd(0, 0); bwd(0, 0); }", "train",
    "schedule s(ranks) { rank r { fwd(0, 0); bwd(0, 0); } }", "module m(a) { }", "fn (x) { return x; }", "stage_end;",
    "derivative (y, dy) { return dy; }", "{ }", "x[.., 0..n]", "x[0]", "else if a { b(); }", "\t", "\x80", "break;", "continue;",
    "f(a, b = 1);", "infinity", "true", "false", "training", "real", "f32", "i32[b]", "f64", "bool", "reshape(x, [-1])", "mean",
    "sum(x)", "max(x, axis = 0)", "mean(x, axis = -1, keep = true)", "random([2, 3])", "random(shape(x))", "gather(x, iota(2))",
    "select(x > 0.0, x, 0.0)", "output a = mean(x);", "output c = concat(x);", "require 1 == 1, \"t\";", "append(a, a)",
    "normal(0.0, 1.0)", "uniform(-1, 1)", "steps", "ranks", "stages", "microbatches", "iota(3)", "attention(x, x, x)",
    "transpose(x)", "x @ transpose(x)", "permute(x, [0, 1])", "concat([x, x])", "pad(x, 0, 1, 1)", "cast(x, i32)", "cast(x, f64)",
    "shape(x)", "pow(x, 2)", "sort([2, 1])", "copy", "reverse(0..3)", "print(1)", "dropout(x, 0.5)", "sqrt(x)", "x * x",
    "nonfinite skip;", "loss_scale dynamic(interval = 2);", "dtype f64;", "clip global_norm(1.0);", "seed 3;", "generate net;", "stages 2;", "steps 0;",
    "schedule interleaved_1f1b(chunks = 2);", "optimizer adamw(lr = constant(0.1));", "data x = synthetic(8, 5);",
    "data x = bytes(\"corpus.txt\", 9);", "bwd_input(0, 0); bwd_weight(0, 0);", "use nn;", "use optim;", "use schedules;",
};
static const char *const numbers[] = {"0",   "1",   "-1",  "2",    "3",     "4",          "5",          "7",
                                      "8",   "16",  "64",  "100",  "65536", "2147483647", "2147483648", "9223372036854775807",
                                      "1.5", "0.0", "1e9", "1e-9", "1e308", "1e-320",     "1e999",      "9223372036854775808"};
enum { N_WORDS = sizeof words / sizeof *words, N_NUMBERS = sizeof numbers / sizeof *numbers };

static bool is_word_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

typedef struct {
  size_t start, end;
} Span;

/* A word, a sign or a blank. */
static Span pick_token(const Str *text) {
  Span s = {.start = random_below((uint32_t)text->length)};
  while (s.start > 0 && is_word_byte(text->text[s.start]) && is_word_byte(text->text[s.start - 1])) s.start--;
  s.end = s.start + 1;
  while (s.end < text->length && is_word_byte(text->text[s.start]) && is_word_byte(text->text[s.end])) s.end++;
  return s;
}

static bool is_number(const Str *text, Span s) {
  return text->text[s.start] >= '0' && text->text[s.start] <= '9';
}

static bool is_name(const Str *text, Span s) {
  return is_word_byte(text->text[s.start]) && !is_number(text, s);
}

static Span pick(const Str *text, bool (*wanted)(const Str *, Span)) {
  Span s = pick_token(text);
  for (int i = 0; i < 100 && !wanted(text, s); i++) s = pick_token(text);
  return s;
}

static Span pick_line(const Str *text) {
  Span s = {.start = random_below((uint32_t)text->length)};
  s.end = s.start + 1;
  while (s.start > 0 && text->text[s.start - 1] != '\n') s.start--;
  while (s.end < text->length && text->text[s.end - 1] != '\n') s.end++;
  return s;
}

/* text[start, end) becomes `with`. */
static void replace(Str *text, Span s, const char *with, size_t length) {
  Str result = {0};
  str_append(&result, text->text, s.start);
  str_append(&result, with, length);
  str_append(&result, text->text + s.end, text->length - s.end);
  str_free(text);
  *text = result;
}

static void put(Str *text, Span s, const char *with) {
  replace(text, s, with, strlen(with));
}

/* `to` becomes what stands at `from`. */
static void copy_span(Str *text, Span to, Span from) {
  Str piece = {0};
  str_append(&piece, text->text + from.start, from.end - from.start);
  replace(text, to, str_text(&piece), piece.length);
  str_free(&piece);
}

static Span before(Span s) {
  return (Span){s.start, s.start};
}

/* A line of another seed comes before this place. */
static void borrow_line(Str *text, Span at, const Seed *seed) {
  Str other = {0};
  str_append(&other, seed->text, seed->length);
  if (other.length > 0) {
    Span line = pick_line(&other);
    replace(text, at, other.text + line.start, line.end - line.start);
  }
  str_free(&other);
}

static void mutate(Str *text, const Seeds *seeds) {
  if (text->length == 0) str_putc(text, ';');
  Span token = pick_token(text), line = pick_line(text);
  char byte = (char)random_below(256);
  switch (random_below(16)) {
    case 0: put(text, token, ""); break;
    case 1: put(text, token, words[random_below(N_WORDS)]); break;
    case 2: put(text, before(token), words[random_below(N_WORDS)]); break;
    case 3: put(text, before(line), words[random_below(N_WORDS)]); break;
    case 4: copy_span(text, token, pick_token(text)); break;
    case 5: copy_span(text, before(token), pick_token(text)); break;
    case 6:
    case 7: put(text, pick(text, is_number), numbers[random_below(N_NUMBERS)]); break;
    case 8: put(text, pick(text, is_number), words[random_below(N_WORDS)]); break;
    case 9: copy_span(text, pick(text, is_name), pick(text, is_name)); break;
    case 10: put(text, line, ""); break;
    case 11: copy_span(text, before(line), pick_line(text)); break;
    case 12:
    case 13: borrow_line(text, before(line), pick_seed(seeds)); break;
    case 14: replace(text, (Span){token.start, token.start + 1}, &byte, 1); break;
    default: copy_span(text, line, pick_line(text)); break;
  }
}

/* The same for a table: its words are cells and parts of cells. */
static void mutate_table(Str *text, const Seeds *seeds) {
  static const char *const parts[] = {"0F0", "1B0", "2I1", "3W1", "0BW1", ",", "\n", "\r\n", "\"", "(", ";", ")OVERLAP_F_B", "0UNSHARD",
                                      "(0F1;1B0)OVERLAP_F_B", "0SEND_F0", "1RECV_F0", "1SEND_B0", "0RECV_B0", " ", "x",
                                      "0", "7", "99", "2147483647", "99999999999", "-1", "\x80", "\xef\xbb\xbf", "f", "w"};
  if (text->length == 0) str_putc(text, ',');
  Span token = pick_token(text), line = pick_line(text);
  const char *part = parts[random_below(sizeof parts / sizeof *parts)];
  char byte = (char)random_below(256);
  switch (random_below(8)) {
    case 0: put(text, token, part); break;
    case 1: put(text, before(token), part); break;
    case 2: put(text, token, ""); break;
    case 3: copy_span(text, token, pick_token(text)); break;
    case 4: copy_span(text, before(token), pick_token(text)); break;
    case 5: copy_span(text, before(line), pick_line(text)); break;
    case 6: borrow_line(text, before(line), &seeds->tables.at[random_below((uint32_t)seeds->tables.n)]); break;
    default: replace(text, (Span){token.start, token.start + 1}, &byte, 1); break;
  }
}

/* Nested or long inputs that no mutation finds. */
static void make_deep(Str *text) {
  static const char *const parts[] = {"(", "-", "[", "f(", "not ", "a + ", "a ? ", "x[", "fn () { return "};
  const char *part = parts[random_below(sizeof parts / sizeof *parts)];
  int n = 1 << random_below(15);
  str_puts(text, "const a = ");
  for (int i = 0; i < n; i++) str_puts(text, part);
  str_puts(text, "1;");
}

static void make_deep_blocks(Str *text) {
  const char *part = one_in(2) ? "if a {" : "if a { } else ";
  int n = 1 << random_below(13);
  str_puts(text, "fn f(a) {");
  for (int i = 0; i < n; i++) str_puts(text, part);
  for (int i = 0; i < n + 1; i++) str_puts(text, "}");
}

/* --- one input ------------------------------------------------------------------------------------------ */

static bool is_table(const Seed *seed) {
  return str_ends_with(seed->path, ".csv");
}

static const Seed *make_input(const Seeds *seeds, long number, uint64_t seed) {
  random_state = seed * 0x2545f4914f6cdd1du + (uint64_t)number * 0x9e3779b97f4a7c15u;
  bool table = one_in(10);
  const Seed *from = table ? &seeds->tables.at[random_below((uint32_t)seeds->tables.n)] : pick_seed(seeds);
  str_free(&current.text);
  *current.number = number;
  snprintf(current.path, sizeof current.path, "build/fuzz/%ld.%s", number, table ? "csv" : "pp");
  uint32_t kind = random_below(200);
  if (table) {
    str_append(&current.text, from->text, from->length);
    for (uint32_t i = 1 + random_below(6); i > 0; i--) mutate_table(&current.text, seeds);
  } else if (kind == 0) make_deep(&current.text);
  else if (kind == 1) make_deep_blocks(&current.text);
  else {
    str_append(&current.text, from->text, from->length);
    for (uint32_t i = 1 + random_below(3); i > 0; i--) mutate(&current.text, seeds);
  }
  str_text(&current.text);
  return from;
}

static void complain(const char *what) {
  fail_current(what);
  fflush(NULL);
  _exit(ENDED_TOLD);
}

/* What parses is printed as a text that gives the same tree and is printed the same again. */
static void check_print(Arena *arena, Diag *diag, const char *path) {
  int source = diag_add_source_bytes(diag, path, current.text.text, current.text.length);
  const AstFile *file = dsl_parse(arena, diag, source);
  if (!file && diag_error_count(diag) == 0) complain("no tree and no error");
  if (!file) return;
  Str printed = {0}, again = {0}, dump = {0}, dump_again = {0};
  dsl_print(file, &printed);
  dsl_dump(file, &dump);
  const AstFile *reread = dsl_parse(arena, diag, diag_add_source_bytes(diag, path, str_text(&printed), printed.length));
  if (!reread) complain("the printed text has errors");
  dsl_dump(reread, &dump_again);
  if (strcmp(str_text(&dump), str_text(&dump_again)) != 0) complain("the printed text is another program");
  if (file->comments.n > reread->comments.n) complain("a comment was lost");
  dsl_print(reread, &again);
  if (strcmp(str_text(&printed), str_text(&again)) != 0) complain("printed again it differs");
  str_free(&printed);
  str_free(&again);
  str_free(&dump);
  str_free(&dump_again);
}

/* A whole backward that has a weight half too, which `schedule` would refuse, is read as an input half. */
static bool same_kind(pp_task_kind x, pp_task_kind y) {
  return x == y || (x == PP_BWD && y == PP_BWD_INPUT);
}

static bool same_actions(const ScheduledActions *x, const ScheduledActions *y) {
  bool same = x->n == y->n;
  for (int i = 0; same && i < x->n; i++) {
    const ScheduledAction *a = &x->at[i], *b = &y->at[i];
    same = a->rank == b->rank && a->stage == b->stage && a->microbatch == b->microbatch && same_kind(a->kind, b->kind);
  }
  return same;
}

/* A step of it is simulated, proved and shown; in `deadlocks` there may be an error instead. */
static void check_simulation(Arena *arena, Diag *diag, const SimulateJob *job, SimulateView view, bool deadlocks) {
  int errors = diag_error_count(diag);
  const Simulation *s = simulate_run(arena, diag, job);
  if (!s && (!deadlocks || diag_error_count(diag) == errors)) complain("a deadlock without an error");
  if (!s) return;
  if (simulate_prove(arena, job, s) < 0) complain("the simulator's order is no proof");
  Str out = {0};
  view.columns = 1 + (int)random_below(120);
  view.color = one_in(2);
  simulate_report_text(s, &view, &out);
  simulate_report_json(s, &view, &out);
  str_free(&out);
}

static void check_chain(Arena *arena, Diag *diag, const ScheduledActions *list, const ScheduleJob *job, const ScheduleIndex *index) {
  StatedCosts costs = {0};
  if (one_in(2)) costs_parse(arena, "F=2,I=0,W=0.5,transfer=0.25,pair=3", &costs);
  SimulateJob *simulated = simulate_chain(arena, list, index, job, &costs, "fuzz");
  check_simulation(arena, diag, simulated, (SimulateView){.schedule = "fuzz", .stated = &costs}, true);
}

/* Complete schedules among them have their stated transfers checked. */
static void check_stated(Arena *arena, Diag *diag, const ScheduleCsv *csv, int n_stages, int n_microbatches) {
  Loc start = {csv->source, 1, 1};
  ScheduleJob job = {.n_ranks = csv->n_ranks, .n_stages = n_stages, .n_microbatches = n_microbatches, .schedule = start,
                     .ranks = start, .bare = true};
  ScheduleIndex index;
  int errors = diag_error_count(diag);
  if (!schedule_check(diag, arena, &csv->actions, &job, &index)) return;
  StatedJob stated = {.csv = csv, .job = &job, .index = &index};
  if (!stated_check(diag, arena, &stated) && diag_error_count(diag) == errors) complain("transfers refused without an error");
  check_chain(arena, diag, &csv->actions, &job, &index);
}

/* What is read is written, and read again the same. True when it was accepted. */
static bool check_table(Arena *arena, Diag *diag, const char *path) {
  int source = diag_add_source_bytes(diag, path, str_text(&current.text), current.text.length);
  ScheduleCsv *csv = schedule_csv_parse(diag, arena, source);
  if (!csv && diag_error_count(diag) == 0) complain("refused without an error");
  if (!csv || csv->actions.n == 0) return csv != NULL;
  int n_stages = 1, n_microbatches = 1;
  for (int i = 0; i < csv->actions.n; i++) {
    if (csv->actions.at[i].stage >= n_stages) n_stages = csv->actions.at[i].stage + 1;
    if (csv->actions.at[i].microbatch >= n_microbatches) n_microbatches = csv->actions.at[i].microbatch + 1;
  }
  if (n_stages > 64 || n_microbatches > 64) return true; /* ranges are checked before one is written */
  check_stated(arena, diag, csv, n_stages, n_microbatches);
  Str text = {0};
  schedule_csv_write(diag, &csv->actions, csv->n_ranks, &text);
  ScheduleCsv *again = schedule_csv_parse(diag, arena, diag_add_source_bytes(diag, path, text.text, text.length));
  if (!again) complain("the written table has errors");
  if (!same_actions(&csv->actions, &again->actions)) complain("the written table has other actions");
  str_free(&text);
  return true;
}

static void check_prediction(Arena *arena, const Pipeline *p) {
  PlanCosts *costs = plan_costs_estimated(arena, p->plan, machine_core());
  SimulateView view = {.schedule = p->plan->schedule, .plan = p->plan, .costs = costs};
  bug_set_pass("simulate");
  check_simulation(arena, p->diag, simulate_plan(arena, p->plan, costs, "fuzz"), view, false);
}

static void check_output(Arena *arena, const Pipeline *p) {
  EmitFiles files = {0};
  Str out = {0};
  bug_set_pass("emit");
  emit_program(arena, p->plan, &files);
  report_text(p->plan, NULL, &out);
  report_json(p->plan, NULL, &out);
  str_free(&out);
  if (!p->plan->generate) check_prediction(arena, p);
}

static void check_pretty(const Pipeline *p) {
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  if (!f) return;
  bug_set_pass("pretty");
  ir_print_pretty(f, p->ir, ir_top(p->ir), (PrettyOptions){.stage = -1, .rank = -1});
  fclose(f);
  free(text);
}

/* What the command line may say; most of it fits some of the seeds. */
static CompileOptions make_options(Define *define) {
  static const char *const schedules[] = {"gpipe", "one_f_one_b", "interleaved_1f1b", "interleaved_1f1b(chunks = 2)",
                                          "halves", "gpipe(", "3", "fn () { }"};
  static const char *const names[] = {"layers", "width", "stages", "length", "which", "d"};
  static const char *const values[] = {"1", "2", "3", "4", "0", "-1", "true", "2 +", "[1]", "width", "\"a\"", "7; const b = 2"};
#define ONE_OF(list) list[random_below(sizeof list / sizeof *list)]
  *define = (Define){ONE_OF(names), ONE_OF(values)};
  return (CompileOptions){.n_defines = one_in(8),
                          .defines = define,
                          .schedule = one_in(8) ? ONE_OF(schedules) : NULL,
                          .ranks = one_in(8) ? 1 + (int64_t)random_below(4) : -1,
                          .microbatches = one_in(8) ? 1 + (int64_t)random_below(6) : -1,
                          .dtype = one_in(8) ? "f64" : NULL,
                          .microbatch = -1,
                          .steps = -1,
                          .step_limit = STEPS,
                          .no_fuse = one_in(8),
                          .generate = one_in(16)};
#undef ONE_OF
}

/* A schedule of a program without a model, for some numbers. */
static bool run_schedule_of(Arena *arena, Diag *diag, Ir *ir, const DslProgram *text, const char *name) {
  CompileOptions options = {.schedule = name, .ranks = 1 + (int64_t)random_below(4), .microbatches = 1 + (int64_t)random_below(6),
                            .microbatch = -1, .steps = -1, .step_limit = STEPS};
  Program *program = elaborate_schedule(ir, text, &options);
  if (!program) return false;
  ScheduleJob job = {.n_ranks = (int)options.ranks, .n_stages = (int)options.ranks * (1 + (int)random_below(2)),
                     .n_microbatches = (int)options.microbatches, .schedule = program_schedule_loc(program),
                     .ranks = program_ranks_loc(program), .bare = true};
  ScheduledActions list = {0};
  ScheduleIndex index;
  if (!program_run_schedule(program, job.n_ranks, job.n_stages, job.n_microbatches, &list)) return false;
  if (!schedule_check(diag, arena, &list, &job, &index)) return false;
  check_chain(arena, diag, &list, &job, &index);
  return true;
}

/* True when one of its schedules was accepted. */
static bool run_schedules(Arena *arena, const Seed *from) {
  Diag *diag = diag_create();
  bool accepted = false;
  const DslProgram *text = dsl_load_text(arena, diag, from->path, str_text(&current.text));
  for (int i = 0; text && !text->train && i < text->main->items.n; i++) {
    const AstItem *item = text->main->items.at[i];
    if (item->kind != ITEM_SCHEDULE || !one_in(4)) continue;
    Ir *ir = ir_create(arena, diag);
    int errors = diag_error_count(diag);
    bool fine = run_schedule_of(arena, diag, ir, text, item->name);
    if (!fine && diag_error_count(diag) == errors) complain("a schedule refused without an error");
    accepted |= fine;
    ir_destroy(ir);
  }
  diag_destroy(diag);
  return accepted;
}

/* True when it was accepted. */
static bool run_program(Arena *arena, Diag *diag, const Seed *from) {
  check_print(arena, diag, from->path);
  Define define;
  CompileOptions options = make_options(&define);
  Pipeline p = {.arena = arena, .diag = diag};
  bool fine = pipeline_run_text(&p, from->path, str_text(&current.text), &options, NULL);
  if (fine) check_output(arena, &p);
  if (p.ir && one_in(8)) check_pretty(&p);
  if (!fine && diag_error_count(diag) == 0) complain("refused without an error");
  bug_set_pass(NULL);
  pipeline_destroy(&p);
  return fine || run_schedules(arena, from);
}

static bool run_input(const Seed *from) {
  Arena *arena = arena_create();
  Diag *diag = diag_create();
  bug_set_pass("parse");
  bool fine = is_table(from) ? check_table(arena, diag, from->path) : run_program(arena, diag, from);
  Str messages = {0};
  diag_flush_to(diag, &messages);
  str_free(&messages);
  diag_destroy(diag);
  arena_destroy(arena);
  return fine;
}

/* --- batches in children -------------------------------------------------------------------------------- */

static int run_here(const Seeds *seeds, long first, long n, uint64_t seed, long *accepted) {
  signal(SIGPROF, on_alarm);
  for (long i = first; i < first + n; i++) {
    set_alarm(SECONDS);
    *accepted += run_input(make_input(seeds, i, seed));
  }
  set_alarm(0);
  return leaked() ? ENDED_LEAKING : ENDED_WELL;
}

/* How inputs [first, first + n) ended in a child. */
static int run_child(const Seeds *seeds, long first, long n, uint64_t seed, bool quiet, long *out_accepted) {
  int ends[2];
  fflush(NULL);
  if (pipe(ends) != 0) return ENDED_BADLY;
  pid_t child = fork();
  if (child < 0) return ENDED_BADLY;
  if (child == 0) {
    long accepted = 0;
    if (quiet && !freopen("/dev/null", "w", stderr)) _exit(ENDED_BADLY);
    int status = run_here(seeds, first, n, seed, &accepted);
    ssize_t ignored = write(ends[1], &accepted, sizeof accepted);
    (void)ignored;
    _exit(status);
  }
  close(ends[1]);
  if (read(ends[0], out_accepted, sizeof *out_accepted) != (ssize_t)sizeof *out_accepted) *out_accepted = 0;
  close(ends[0]);
  int status;
  while (waitpid(child, &status, 0) < 0) {}
  return WIFEXITED(status) && WEXITSTATUS(status) <= ENDED_BADLY ? WEXITSTATUS(status) : ENDED_BADLY;
}

/* The batch that began with `first` and ended so. */
static void report(const Seeds *seeds, long first, long n, uint64_t seed, int status) {
  static const char *const what[] = {[ENDED_LATE] = "did not end in time", [ENDED_BADLY] = "crashed"};
  long ignored;
  if (status == ENDED_TOLD) return;
  if (status != ENDED_LEAKING) {
    make_input(seeds, *current.number, seed);
    fail_current(what[status]);
    return;
  }
  for (long i = first; i < first + n; i++)
    if (run_child(seeds, i, 1, seed, true, &ignored) == ENDED_LEAKING) {
      make_input(seeds, i, seed);
      fail_current("leaked memory");
      return;
    }
  printf("FAIL fuzz: inputs %ld to %ld together leak memory\n", first, first + n - 1);
}

int main(int argc, char **argv) {
  long n = argc > 1 ? strtol(argv[1], NULL, 10) : 5000, first = argc > 3 ? strtol(argv[3], NULL, 10) : 0;
  uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  void *shared = mmap(NULL, sizeof *current.number, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  current.number = shared;
  Arena *arena = arena_create();
  Seeds seeds = {0};
  read_seeds(arena, &seeds);
  mkdir("build", 0755);
  mkdir("build/fuzz", 0755);
  int status = seeds.programs.n > 0 && seeds.errors.n > 0 && seeds.tables.n > 0 ? ENDED_WELL : ENDED_BADLY;
  if (status != ENDED_WELL) printf("FAIL fuzz: found no programs to start from\n");
  long accepted = 0, done = 0;
  while (status == ENDED_WELL && done < n) {
    long batch = n - done < BATCH ? n - done : BATCH, one = 0;
    status = run_child(&seeds, first + done, batch, seed, false, &one);
    if (status != ENDED_WELL) report(&seeds, first + done, batch, seed, status);
    accepted += one;
    done += batch;
  }
  if (status == ENDED_WELL) printf("ok fuzz: %ld inputs, %ld of them accepted\n", n, accepted);
  str_free(&current.text);
  arena_destroy(arena);
  return status != ENDED_WELL;
}
