/* Parses the command line. In: argv. Out: Options. Every option has one row in the table: its commands,
 * its kind (which checks the value), the field it sets and its help. An option of the emitted programs is
 * passed on as text, and where it also matters to the compiler sets a field too. */
#include "compiler/driver/options.h"

#include "compiler/schedule_csv.h"
#include "compiler/simulate.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PPC_VERSION "0.1"

/* --- the tables ------------------------------------------------------------------------------------ */

typedef enum {
  KIND_FLAG,
  KIND_TEXT,
  KIND_POSITIVE,      /* from 1 */
  KIND_NUMBER,     /* from 0 */
  KIND_SEED,       /* 64 bits */
  KIND_THREADS,
  KIND_REAL,       /* from 0 */
  KIND_BYTES,      /* from 1, with a unit or without */
  KIND_ANY_BYTES,  /* from 0 */
  KIND_DEFINE,
  KIND_DATA,
  KIND_DTYPE,
  KIND_PRECISION,
  KIND_COLOR,
  KIND_FORMAT,
  KIND_TARGET,
  KIND_ARCH,       /* 80,90a */
  KIND_GPU,
  KIND_COST,
  KIND_STEPS,      /* A:B */
  KIND_RATE        /* per second: 50G */
} Kind;

enum {
  CHECK = 1 << COMMAND_CHECK,
  COMPILE = 1 << COMMAND_COMPILE,
  RUN = 1 << COMMAND_RUN,
  DUMP = 1 << COMMAND_DUMP,
  SIMULATE = 1 << COMMAND_SIMULATE,
  FMT = 1 << COMMAND_FMT,
  MODEL = CHECK | COMPILE | RUN | DUMP | SIMULATE,
  ALL = MODEL | FMT
};

enum { PASSED_ON = 1, TRAINING_ONLY = 2, GENERATING_ONLY = 4, MODEL_ONLY = 8, SCHEDULE_ONLY = 16, CPU_ONLY = 32, CUDA_ONLY = 64 };

typedef struct {
  const char *name, *argument; /* "--ranks", "N"; a flag has no argument */
  char letter;                 /* -o, 0: none */
  unsigned commands;
  Kind kind;
  unsigned flags;
  size_t field;                /* in Options; NO_FIELD: it is only passed on */
  const char *help;
} Row;

#define AT(field) offsetof(Options, field)
#define NO_FIELD ((size_t)-1)

static const Row table[] = {
    {"--define", "NAME=VALUE", 'D', MODEL, KIND_DEFINE, 0, NO_FIELD, "a `const` of the model takes this value (-D NAME=VALUE)"},
    {"--ranks", "N", 0, MODEL, KIND_POSITIVE, 0, AT(compile.ranks), "number of ranks"},
    {"--microbatch", "N", 0, MODEL, KIND_POSITIVE, MODEL_ONLY, AT(compile.microbatch), "samples in a microbatch"},
    {"--microbatches", "N", 0, MODEL, KIND_POSITIVE, 0, AT(compile.microbatches), "microbatches in a step"},
    {"--schedule", "NAME(ARGS)", 0, MODEL, KIND_TEXT, 0, AT(compile.schedule), "the schedule, e.g. 'gpipe' or 'interleaved_1f1b(2)', or FILE.csv with a\n"
                                                                               "row of actions per rank (PyTorch's form)"},
    {"--keep-transfers", NULL, 0, MODEL, KIND_FLAG, 0, AT(compile.keep_transfers), "check the SEND and RECV cells of the CSV too: all there, in place,\n"
                                                                                   "and in an order that can finish when sends wait for receives"},
    {"--steps", "N", 0, MODEL, KIND_NUMBER, PASSED_ON | TRAINING_ONLY | MODEL_ONLY, AT(compile.steps), "steps to train"},
    {"--seed", "N", 0, MODEL, KIND_SEED, PASSED_ON | MODEL_ONLY, NO_FIELD, "seed of initial values, data order and random numbers"},
    {"--data", "NAME=PATH", 0, MODEL, KIND_DATA, MODEL_ONLY, NO_FIELD, "a data source reads this file"},
    {"--dtype", "f32|f64", 0, MODEL, KIND_DTYPE, MODEL_ONLY, AT(compile.dtype), "type of real tensors"},
    {"--precision", "f32|tf32|bf16", 0, MODEL, KIND_PRECISION, MODEL_ONLY, AT(compile.precision), "of the operands of products (tf32: with --target=cuda), bf16 of\nattention, too"},
    {"--threads", "N", 0, MODEL, KIND_THREADS, MODEL_ONLY | CPU_ONLY, AT(compile.threads), "threads of each rank's matrix products (1)"},
    {"--memory", "BYTES", 0, CHECK | COMPILE | RUN, KIND_BYTES, MODEL_ONLY, AT(compile.memory), "an error when a rank needs more (2GiB, 512MB, 4096)"},
    {"--no-fuse", NULL, 0, MODEL, KIND_FLAG, MODEL_ONLY, AT(compile.no_fuse), "one kernel for each operation; the results have the same bits"},
    {"--target", "cpu|cuda", 0, MODEL, KIND_TARGET, MODEL_ONLY, NO_FIELD, "what the programs run on (cpu)"},
    {"--arch", "LIST", 0, COMPILE | RUN, KIND_ARCH, CUDA_ONLY, NO_FIELD, "for --target=cuda: what device code is built for, like 90 or 80,90\n"
                                                                        "(80,90,100 as far as nvcc knows them, and PTX of the newest)"},
    {"--products-workspace", "BYTES", 0, CHECK | COMPILE | RUN, KIND_ANY_BYTES, CUDA_ONLY, AT(compile.products_workspace),
     "for --target=cuda: what the library of matrix products may use (4MiB)"},
    {"--no-epilogues", NULL, 0, MODEL, KIND_FLAG, CUDA_ONLY, AT(compile.no_epilogues),
     "for --target=cuda: kernels add biases and make gelu, not the library of\nmatrix products"},
    {"--verify", NULL, 0, MODEL, KIND_FLAG, MODEL_ONLY, AT(compile.verify), "verify the IR after each pass"},
    {"--generate", NULL, 0, CHECK | COMPILE | DUMP, KIND_FLAG, MODEL_ONLY, AT(compile.generate), "the forward-only program of train's `generate` line"},
    {"--output", "DIR", 'o', COMPILE | RUN, KIND_TEXT, 0, AT(output), "folder of the emitted programs (-o DIR)"},
    {"--json", NULL, 0, CHECK | RUN | SIMULATE, KIND_FLAG, 0, AT(json), "print JSON"},

    {"--stages", "N", 0, CHECK | SIMULATE | DUMP, KIND_POSITIVE, SCHEDULE_ONLY, AT(stages), "without a model: number of stages (the fewest that will do)"},
    {"--cost", "F=1,I=1", 0, CHECK | SIMULATE, KIND_COST, 0, NO_FIELD, "what tasks cost: F, I, W, B, pair, and a transfer;\n"
                                                                         "a value, or [a,b,…] with one for each stage"},
    {"--costs", "TRACE", 0, SIMULATE, KIND_TEXT, MODEL_ONLY, AT(trace_costs), "a model's costs as measured: a file that --trace wrote"},
    {"--flops", "RATE", 0, SIMULATE, KIND_RATE, MODEL_ONLY, AT(flops), "of products, per second, to estimate a model's costs (a core's 20G)"},
    {"--bandwidth", "RATE", 0, SIMULATE, KIND_RATE, MODEL_ONLY, AT(bandwidth), "bytes that a rank moves per second, likewise (a core's 10G)"},
    {"--link", "RATE", 0, SIMULATE, KIND_RATE, MODEL_ONLY, AT(link), "bytes per second between two ranks, likewise (a core's 5G)"},
    {"--gpu", "NAME", 0, CHECK | SIMULATE, KIND_GPU, MODEL_ONLY | CUDA_ONLY, NO_FIELD, "for --target=cuda: estimate costs by the figures of an a100, h100, h200\nor b200 (h100)"},

    {"--svg", "FILE", 0, SIMULATE, KIND_TEXT, 0, AT(svg), "draw the step as an SVG"},
    {"--html", "FILE", 0, SIMULATE, KIND_TEXT, 0, AT(html), "draw the step as a page with zoom"},
    {"--trace", "FILE", 0, SIMULATE, KIND_TEXT, 0, AT(trace), "draw the measured step of ppc run --trace=FILE too"},
    {"--init", "FILE", 0, RUN, KIND_TEXT, PASSED_ON, NO_FIELD, "start from the parameters in a safetensors file"},
    {"--save", "FILE", 0, RUN, KIND_TEXT, PASSED_ON | TRAINING_ONLY, NO_FIELD, "write the parameters there at the end"},
    {"--save-gradients", "FILE", 0, RUN, KIND_TEXT, PASSED_ON | TRAINING_ONLY, NO_FIELD, "write the last step's gradients there"},
    {"--trace", "FILE", 0, RUN, KIND_TEXT, PASSED_ON | TRAINING_ONLY, NO_FIELD, "write what each rank did when, for Perfetto and ppc simulate"},
    {"--trace-steps", "A:B", 0, RUN, KIND_STEPS, PASSED_ON | TRAINING_ONLY, NO_FIELD, "trace steps A to B (the last 10)"},
    {"--generate", "N", 0, RUN, KIND_POSITIVE, PASSED_ON | GENERATING_ONLY, NO_FIELD, "print N bytes or tokens instead of training"},
    {"--prompt", "TEXT", 0, RUN, KIND_TEXT, PASSED_ON | GENERATING_ONLY, NO_FIELD, "text that --generate goes on from"},
    {"--temperature", "T", 0, RUN, KIND_REAL, PASSED_ON | GENERATING_ONLY, NO_FIELD, "of --generate; 0 takes the likeliest token (1)"},
    {"--top-k", "K", 0, RUN, KIND_NUMBER, PASSED_ON | GENERATING_ONLY, NO_FIELD, "--generate draws among the K likeliest; 0: all (0)"},
    {"--graph", NULL, 0, RUN, KIND_FLAG, PASSED_ON | TRAINING_ONLY | CUDA_ONLY, NO_FIELD, "for --target=cuda: capture the step in a CUDA graph, and launch that"},
    {"--timeout", "SECONDS", 0, RUN, KIND_REAL, PASSED_ON, NO_FIELD, "end the job when a rank is gone or nothing moves for so long (5)"},
    {"--start-timeout", "SECONDS", 0, RUN, KIND_REAL, PASSED_ON, NO_FIELD, "wait so long for all ranks to start (60)"},
    {"--transport", "NAME", 0, RUN, KIND_TEXT, PASSED_ON, NO_FIELD, "of a program for GPUs: nccl, host or auto; see docs/cuda.md (auto)"},
    {"--shm-dir", "DIR", 0, RUN, KIND_TEXT, PASSED_ON, NO_FIELD, "where shared memory is made (/dev/shm)"},
    {"--log-every", "N", 0, RUN, KIND_POSITIVE, PASSED_ON | TRAINING_ONLY, NO_FIELD, "print a line for every N-th step, and the last one (1)"},
    {"--quiet", NULL, 0, RUN, KIND_FLAG, PASSED_ON, AT(quiet), "print no line per step"},
    {"--keep", NULL, 0, RUN, KIND_FLAG, 0, AT(keep), "print where the emitted programs lie"},

    {"--after", "PASS", 0, DUMP, KIND_TEXT, 0, AT(after), "elaborate, simplify, autodiff, stages, epilogues, split, schedule,\n"
                                                          "transfers, fuse, memory, progress or events (the last one)"},
    {"--stage", "K", 0, DUMP, KIND_NUMBER, 0, AT(stage), "one stage only"},
    {"--rank", "R", 0, DUMP, KIND_NUMBER, 0, AT(rank), "one rank only"},
    {"--pretty", NULL, 0, DUMP, KIND_FLAG, 0, AT(pretty), "the form for people"},
    {"--format", "mlir|pretty|csv", 0, DUMP, KIND_FORMAT, 0, NO_FIELD, "csv: the schedule's actions as PyTorch's CSV (--after=schedule)"},
    {"--locations", NULL, 0, DUMP, KIND_FLAG, 0, AT(locations), "MLIR text with source locations"},
    {"--irdl", NULL, 0, DUMP, KIND_FLAG, 0, AT(irdl), "the dialect, for mlir-opt-19 --irdl-file=…; needs no model"},

    {"--write", NULL, 'i', FMT, KIND_FLAG, 0, AT(write), "change the files in place (-i)"},
    {"--check", NULL, 0, FMT, KIND_FLAG, 0, AT(check), "name the files that would change, and exit with 1 if there are any"},

    {"--color", "auto|always|never", 0, ALL, KIND_COLOR, 0, NO_FIELD, "colours (auto: on a terminal)"},
};
enum { N_ROWS = sizeof table / sizeof *table };

typedef struct {
  const char *name, *files, *what, *examples;
} CommandRow;

static const CommandRow commands[] = {
    {"check", "[MODEL.pp]", "checks types, schedule, progress and memory, and prints a report",
     "  ppc check gpt2.pp\n"
     "  ppc check gpt2.pp --ranks=4 --schedule='interleaved_1f1b(2)' --microbatches=16\n"
     "  ppc check gpt2.pp -D width=768 --json\n"
     "  ppc check mine.pp --schedule=mine --ranks=4 --microbatches=8\n"
     "  ppc check --schedule=zb_h1 --ranks=8 --microbatches=24\n"
     "  ppc check --schedule=order.csv --keep-transfers\n"},
    {"compile", "MODEL.pp -o DIR", "emits one C program per rank into DIR, which builds with make",
     "  ppc compile gpt2.pp -o out && make -C out && out/launch.sh\n"
     "  ppc compile gpt2.pp -o out --ranks=4 -D layers=8\n"
     "  ppc compile gpt2.pp -o out --generate\n"
     "  ppc compile gpt2.pp -o out --target=cuda && make -C out\n"},
    {"run", "MODEL.pp", "compiles, builds and runs all ranks on this host",
     "  ppc run gpt2.pp --steps=400 --save=weights.safetensors\n"
     "  ppc run gpt2.pp --ranks=4 --data text=corpus.txt --json\n"
     "  ppc run gpt2.pp --init=weights.safetensors --generate=200 --prompt='In the beginning'\n"},
    {"dump", "MODEL.pp", "prints the IR after a pass",
     "  ppc dump gpt2.pp --after=split --stage=1 --pretty\n"
     "  ppc dump gpt2.pp --after=memory --rank=0 --pretty\n"
     "  ppc dump gpt2.pp --after=schedule --format=csv >order.csv\n"
     "  ppc dump --irdl >pp.irdl.mlir && ppc dump gpt2.pp | mlir-opt-19 --irdl-file=pp.irdl.mlir\n"},
    {"simulate", "[MODEL.pp]", "predicts step time, bubble and memory",
     "  ppc simulate gpt2.pp --ranks=4 --schedule=zb_h1\n"
     "  ppc run gpt2.pp --steps=20 --trace=trace.json && ppc simulate gpt2.pp --costs=trace.json --schedule=zb_h1\n"
     "  ppc simulate gpt2.pp --cost F=1,I=1,W=1,transfer=0.05\n"
     "  ppc simulate --schedule=zb_h1 --ranks=8 --microbatches=24\n"
     "  ppc simulate --schedule='interleaved_1f1b(2)' --ranks=4 --microbatches=8 --cost F=1,B=2,transfer=0.05 --json\n"
     "  ppc simulate mine.pp --schedule=mine --ranks=2 --microbatches=4 --cost 'F=[1,1,2,1]' --html=step.html\n"},
    {"fmt", "MODEL.pp…", "prints files in the canonical form, comments kept",
     "  ppc fmt model.pp\n"
     "  ppc fmt -i model.pp layers.pp\n"
     "  ppc fmt --check *.pp\n"},
};
_Static_assert(sizeof commands / sizeof *commands == COMMAND_COUNT, "one row per command");

/* --- help --------------------------------------------------------------------------------------------- */

static const char exit_statuses[] =
    "Exit status: 0 fine, 1 wrong input, 2 usage, 3 a fault of ppc itself, 4 a run failed;\n"
    "128 + N when signal N ended a run.\n";

static void print_help(void) {
  printf("ppc compiles a model and its pipeline schedule into one C program per rank.\n\n");
  for (int i = 0; i < COMMAND_COUNT; i++) printf("  ppc %-8s %-15s  %s\n", commands[i].name, commands[i].files, commands[i].what);
  printf("\nppc COMMAND --help lists a command's options.\n\nExamples:\n");
  printf("  ppc check gpt2.pp\n  ppc run gpt2.pp --ranks=2 --steps=100\n  ppc compile gpt2.pp -o out && make -C out\n\n%s", exit_statuses);
}

static void print_row(const Row *row) {
  char left[64];
  if (row->letter) snprintf(left, sizeof left, "-%c, %s%s%s", row->letter, row->name, row->argument ? "=" : "", row->argument ? row->argument : "");
  else snprintf(left, sizeof left, "    %s%s%s", row->name, row->argument ? "=" : "", row->argument ? row->argument : "");
  printf("  %-30s ", left);
  for (const char *p = row->help; *p; p++) {
    putchar(*p);
    if (*p == '\n') printf("  %-30s ", "");
  }
  putchar('\n');
}

static void print_command_help(Command command) {
  const CommandRow *c = &commands[command];
  printf("ppc %s %s\n  %s.\n\nOptions:\n", c->name, c->files, c->what);
  for (size_t i = 0; i < N_ROWS; i++)
    if ((table[i].commands >> command & 1) && table[i].help) print_row(&table[i]);
  printf("\nExamples:\n%s\n%s", c->examples, exit_statuses);
}

/* --- values -------------------------------------------------------------------------------------------- */

typedef struct {
  Arena *arena;
  Options *options;
  unsigned seen_flags;          /* TRAINING_ONLY, GENERATING_ONLY */
  const char *training, *generating; /* an option that was seen of each */
  const char *rate;                  /* --flops, … */
  const char *cpu_only, *cuda_only;  /* an option that was seen of each target */
  bool generates;
} Parser;

static int complain(const Parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int complain(const Parser *p, const char *format, ...) {
  va_list args;
  fprintf(stderr, "ppc: ");
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  if (p->options->command < COMMAND_COUNT) fprintf(stderr, " (see ppc %s --help)\n", commands[p->options->command].name);
  else fprintf(stderr, " (see ppc --help)\n");
  return STATUS_USAGE;
}

static bool parse_u64(const char *text, uint64_t max, uint64_t *out_value) {
  uint64_t value = 0;
  if (!*text) return false;
  for (; *text; text++) {
    if (*text < '0' || *text > '9') return false;
    uint64_t digit = (uint64_t)(*text - '0');
    if (value > (max - digit) / 10) return false;
    value = value * 10 + digit;
  }
  *out_value = value;
  return value <= max;
}

static int parse_number(const Parser *p, const Row *row, const char *value, uint64_t min, uint64_t max, uint64_t *out_number) {
  if (parse_u64(value, max, out_number) && *out_number >= min) return STATUS_FINE;
  return complain(p, "%s=%s: expected a number from %llu to %llu", row->name, value, (unsigned long long)min, (unsigned long long)max);
}

static void *field_of(Parser *p, const Row *row) { return (char *)p->options + row->field; }

static int set_number(Parser *p, const Row *row, const char *value, uint64_t min, uint64_t max) {
  uint64_t number;
  int status = parse_number(p, row, value, min, max, &number);
  if (status == STATUS_FINE && row->field != NO_FIELD) *(int64_t *)field_of(p, row) = (int64_t)number;
  return status;
}

static int set_threads(Parser *p, const Row *row, const char *value) {
  uint64_t number;
  int status = parse_number(p, row, value, 1, 4096, &number);
  if (status == STATUS_FINE) p->options->compile.threads = (int)number;
  return status;
}

static int set_seed(Parser *p, const Row *row, const char *value) {
  uint64_t number;
  int status = parse_number(p, row, value, 0, UINT64_MAX, &number);
  if (status != STATUS_FINE) return status;
  p->options->compile.seed = (int64_t)number;
  p->options->compile.has_seed = true;
  return status;
}

static int check_real(Parser *p, const Row *row, const char *value) {
  double number;
  if ((*value >= '0' && *value <= '9') || *value == '.')
    if (str_to_double(value, &number) && number >= 0 && number < 1e9) return STATUS_FINE;
  return complain(p, "%s=%s: expected a number from 0 up", row->name, value);
}

/* What a unit stands for: "" 1, "KB" 1000, "KiB" 1024, …; 0: it is none. */
static uint64_t unit_bytes(const char *unit) {
  static const char letters[] = "KMGT";
  const char *letter = *unit ? strchr(letters, *unit) : NULL;
  if (!*unit || !strcmp(unit, "B")) return 1;
  bool binary = !strcmp(unit + 1, "iB");
  if (!letter || (!binary && strcmp(unit + 1, "B") != 0)) return 0;
  uint64_t bytes = 1;
  for (const char *c = letters; c <= letter; c++) bytes *= binary ? 1024 : 1000;
  return bytes;
}

static int set_bytes(Parser *p, const Row *row, const char *value, uint64_t least) {
  size_t digits = strspn(value, "0123456789");
  uint64_t number, unit = unit_bytes(value + digits);
  if (unit && parse_u64(arena_strndup(p->arena, value, digits), INT64_MAX / unit, &number) && number >= least) {
    *(int64_t *)field_of(p, row) = (int64_t)(number * unit);
    return STATUS_FINE;
  }
  return complain(p, "%s=%s: expected bytes, as in 2GiB, 512MB or 4096", row->name, value);
}

static bool is_name(const char *text, size_t n) {
  if (n == 0 || (text[0] >= '0' && text[0] <= '9')) return false;
  for (size_t i = 0; i < n; i++) {
    char c = text[i];
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_')) return false;
  }
  return true;
}

/* "NAME=REST": the name, and what follows the sign; null when it isn't of that form. */
static const char *split_pair(const Parser *p, const char *value, const char **out_rest) {
  const char *equals = strchr(value, '=');
  if (!equals || !equals[1] || !is_name(value, (size_t)(equals - value))) return NULL;
  *out_rest = equals + 1;
  return arena_strndup(p->arena, value, (size_t)(equals - value));
}

static int set_define(Parser *p, const char *value) {
  const char *rest = NULL, *name = split_pair(p, value, &rest);
  if (!name) return complain(p, "-D %s: expected NAME=VALUE", value);
  VEC_PUSH(p->arena, &p->options->defines, (Define){name, rest});
  return STATUS_FINE;
}

/* A path of the command line is meant from here, one in the model from the model's folder. */
static const char *absolute_path(Arena *arena, const char *path) {
  char here[PATH_MAX];
  if (path[0] == '/' || !getcwd(here, sizeof here)) return path;
  return arena_printf(arena, "%s/%s", here, path);
}

static int set_data(Parser *p, const char *value) {
  const char *rest = NULL, *name = split_pair(p, value, &rest);
  if (!name) return complain(p, "--data=%s: expected NAME=PATH", value);
  VEC_PUSH(p->arena, &p->options->data, (DataOverride){name, absolute_path(p->arena, rest)});
  return STATUS_FINE;
}

static int set_dtype(Parser *p, const char *value) {
  if (strcmp(value, "f32") != 0 && strcmp(value, "f64") != 0) return complain(p, "--dtype=%s: expected f32 or f64", value);
  p->options->compile.dtype = value;
  return STATUS_FINE;
}

static int set_precision(Parser *p, const char *value) {
  if (strcmp(value, "f32") != 0 && strcmp(value, "tf32") != 0 && strcmp(value, "bf16") != 0)
    return complain(p, "--precision=%s: expected f32, tf32 or bf16", value);
  p->options->compile.precision = value;
  return STATUS_FINE;
}

static int set_color(Parser *p, const char *value) {
  if (strcmp(value, "auto") == 0) p->options->color = COLOR_AUTO;
  else if (strcmp(value, "always") == 0) p->options->color = COLOR_ALWAYS;
  else if (strcmp(value, "never") == 0) p->options->color = COLOR_NEVER;
  else return complain(p, "--color=%s: expected auto, always or never", value);
  return STATUS_FINE;
}

static int set_format(Parser *p, const char *value) {
  if (strcmp(value, "mlir") == 0) p->options->format = FORMAT_MLIR;
  else if (strcmp(value, "pretty") == 0) p->options->format = FORMAT_PRETTY;
  else if (strcmp(value, "csv") == 0) p->options->format = FORMAT_CSV;
  else return complain(p, "--format=%s: expected mlir, pretty or csv", value);
  return STATUS_FINE;
}

static int set_target(Parser *p, const char *value) {
  if (strcmp(value, "cpu") == 0) p->options->compile.target = PP_TARGET_CPU;
  else if (strcmp(value, "cuda") == 0) p->options->compile.target = PP_TARGET_CUDA;
  else return complain(p, "--target=%s: expected cpu or cuda", value);
  return STATUS_FINE;
}

static bool has_word(const char *list, const char *word, size_t length) {
  for (const char *at = list; *at; at += strcspn(at, " "), at += *at == ' ')
    if (strcspn(at, " ") == length && memcmp(at, word, length) == 0) return true;
  return false;
}

/* "80,sm_90a": numbers of architectures, which nvcc judges. Kept as "80 90a", each once. */
static int set_arch(Parser *p, const char *value) {
  Str list = {0};
  bool fine = true;
  for (const char *at = value; fine; at++) {
    if (str_starts_with(at, "sm_")) at += strlen("sm_");
    size_t digits = strspn(at, "0123456789"), all = digits + strspn(at + digits, "af");
    fine = digits >= 2 && digits <= 3 && all <= digits + 1 && (at[all] == ',' || at[all] == '\0');
    if (fine && !has_word(str_text(&list), at, all)) str_printf(&list, "%s%.*s", list.length ? " " : "", (int)all, at);
    at += all;
    if (*at == '\0') break;
  }
  if (fine) p->options->compile.arch = arena_strdup(p->arena, str_text(&list));
  str_free(&list);
  return fine ? STATUS_FINE : complain(p, "--arch=%s: expected architectures of GPUs like 90, or 80,90", value);
}

/* "A:B", or "A" for one step; the ranks read it again. */
static int check_steps(Parser *p, const Row *row, const char *value) {
  const char *colon = strchr(value, ':');
  const char *first = colon ? arena_strndup(p->arena, value, (size_t)(colon - value)) : value, *last = colon ? colon + 1 : first;
  uint64_t a, b;
  if (parse_u64(first, INT64_MAX, &a) && parse_u64(last, INT64_MAX, &b) && a >= 1 && b >= a) return STATUS_FINE;
  return complain(p, "%s=%s: expected A:B, steps from 1 up", row->name, value);
}

static int set_text(Parser *p, const Row *row, const char *value) {
  if (!*value) return complain(p, "%s: its value is empty", row->name);
  if (row->field != NO_FIELD) *(const char **)field_of(p, row) = value;
  return STATUS_FINE;
}

/* "50G": a number and one of k, M, G, T. */
static int set_rate(Parser *p, const Row *row, const char *value) {
  static const char suffixes[] = "kMGT";
  size_t n = strlen(value);
  const char *suffix = n ? strchr(suffixes, value[n - 1]) : NULL;
  double rate, factor = 1;
  for (const char *s = suffixes; suffix && s <= suffix; s++) factor *= 1e3;
  const char *digits = suffix ? arena_strndup(p->arena, value, n - 1) : value;
  bool plain = (*digits >= '0' && *digits <= '9') || *digits == '.';
  if (!plain || !str_to_double(digits, &rate) || !(rate * factor >= 1 && rate * factor <= 1e18))
    return complain(p, "%s=%s: expected a rate like 50G or 1.5e9", row->name, value);
  *(double *)field_of(p, row) = rate * factor;
  return STATUS_FINE;
}

static int set_gpu(Parser *p, const char *value) {
  Machine found;
  if (!machine_find_gpu(value, &found)) return complain(p, "--gpu=%s: expected a100, h100, h200 or b200", value);
  p->options->gpu = value;
  p->rate = "--gpu";
  return STATUS_FINE;
}

static int set_cost(Parser *p, const char *value) {
  p->options->has_costs = true;
  const char *error = costs_parse(p->arena, value, &p->options->costs);
  return error ? complain(p, "--cost=%s: %s", value, error) : STATUS_FINE;
}

static int set_value(Parser *p, const Row *row, const char *value) {
  switch (row->kind) {
  case KIND_FLAG:
    *(bool *)field_of(p, row) = true;
    return STATUS_FINE;
  case KIND_TEXT: return set_text(p, row, value);
  case KIND_POSITIVE: return set_number(p, row, value, 1, INT32_MAX);
  case KIND_NUMBER: return set_number(p, row, value, 0, INT32_MAX);
  case KIND_SEED: return set_seed(p, row, value);
  case KIND_THREADS: return set_threads(p, row, value);
  case KIND_REAL: return check_real(p, row, value);
  case KIND_BYTES: return set_bytes(p, row, value, 1);
  case KIND_ANY_BYTES: return set_bytes(p, row, value, 0);
  case KIND_DEFINE: return set_define(p, value);
  case KIND_DATA: return set_data(p, value);
  case KIND_DTYPE: return set_dtype(p, value);
  case KIND_PRECISION: return set_precision(p, value);
  case KIND_COLOR: return set_color(p, value);
  case KIND_FORMAT: return set_format(p, value);
  case KIND_TARGET: return set_target(p, value);
  case KIND_ARCH: return set_arch(p, value);
  case KIND_GPU: return set_gpu(p, value);
  case KIND_COST: return set_cost(p, value);
  case KIND_STEPS: return check_steps(p, row, value);
  case KIND_RATE: return set_rate(p, row, value);
  }
  bug("an option of kind %d", (int)row->kind);
}

/* --- arguments -------------------------------------------------------------------------------------------- */

static int apply(Parser *p, const Row *row, const char *value) {
  int status = set_value(p, row, value);
  if (status != STATUS_FINE) return status;
  if (row->flags & TRAINING_ONLY) p->training = row->name;
  if (row->flags & GENERATING_ONLY) p->generating = row->name;
  if (row->kind == KIND_RATE) p->rate = row->name;
  if (row->flags & CPU_ONLY) p->cpu_only = row->name;
  if (row->flags & CUDA_ONLY) p->cuda_only = row->name;
  if (row->flags & MODEL_ONLY) p->options->model_only = row->name;
  if (row->flags & SCHEDULE_ONLY || (row->kind == KIND_COST && p->options->command == COMMAND_CHECK))
    p->options->schedule_only = row->name;
  if (strcmp(row->name, "--generate") == 0) p->generates = p->options->compile.generate = true;
  bool runs = p->options->command == COMMAND_RUN;
  if (!runs || !(row->flags & PASSED_ON)) return status;
  const char *text = row->argument ? arena_printf(p->arena, "%s=%s", row->name, value) : row->name;
  VEC_PUSH(p->arena, &p->options->run_arguments, text);
  return status;
}

static int unknown_option(const Parser *p, const char *argument) {
  size_t n = strcspn(argument, "=");
  char name[64];
  snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), argument);
  StrGuess guess = str_guess_start(name);
  for (size_t i = 0; i < N_ROWS; i++)
    if ((table[i].commands >> p->options->command & 1) && table[i].help) str_guess_try(&guess, table[i].name);
  if (guess.best) return complain(p, "unknown option '%s'; did you mean '%s'?", name, guess.best);
  for (size_t i = 0; i < N_ROWS; i++)
    if (strcmp(table[i].name, name) == 0) return complain(p, "'%s' is no option of ppc %s", name, commands[p->options->command].name);
  return complain(p, "unknown option '%s'", name);
}

/* "--name=value" or "--name value". */
static int parse_long(Parser *p, int argc, char **argv, int *at) {
  const char *argument = argv[*at], *equals = strchr(argument, '=');
  size_t n = equals ? (size_t)(equals - argument) : strlen(argument);
  for (size_t i = 0; i < N_ROWS; i++) {
    const Row *row = &table[i];
    if (!(row->commands >> p->options->command & 1) || strlen(row->name) != n || memcmp(row->name, argument, n) != 0) continue;
    if (!row->argument) return equals ? complain(p, "%s takes no value", row->name) : apply(p, row, "");
    if (equals) return apply(p, row, equals + 1);
    if (*at + 1 >= argc) return complain(p, "%s needs a value: %s", row->name, row->argument);
    return apply(p, row, argv[++*at]);
  }
  return unknown_option(p, argument);
}

/* "-oDIR" or "-o DIR"; a flag stands alone. */
static int parse_short(Parser *p, int argc, char **argv, int *at) {
  const char *argument = argv[*at];
  for (size_t i = 0; i < N_ROWS; i++) {
    const Row *row = &table[i];
    if (!(row->commands >> p->options->command & 1) || row->letter != argument[1]) continue;
    if (!row->argument) return argument[2] ? unknown_option(p, argument) : apply(p, row, "");
    if (argument[2]) return apply(p, row, argument + 2 + (argument[2] == '='));
    if (*at + 1 >= argc) return complain(p, "-%c needs a value: %s", row->letter, row->argument);
    return apply(p, row, argv[++*at]);
  }
  return unknown_option(p, argument);
}

static int parse_arguments(Parser *p, int argc, char **argv) {
  bool only_files = false;
  for (int i = 2; i < argc; i++) {
    const char *argument = argv[i];
    int status = STATUS_FINE;
    if (only_files || argument[0] != '-' || !argument[1]) VEC_PUSH(p->arena, &p->options->files, argument);
    else if (strcmp(argument, "--") == 0) only_files = true;
    else if (argument[1] == '-') status = parse_long(p, argc, argv, &i);
    else status = parse_short(p, argc, argv, &i);
    if (status != STATUS_FINE) return status;
  }
  return STATUS_FINE;
}

/* --- what must go together --------------------------------------------------------------------------------- */

/* A schedule without a model. */
static int check_bare(const Parser *p) {
  const Options *o = p->options;
  if (o->model_only) return complain(p, "%s is of a model, and none is given", o->model_only);
  if (schedule_is_csv(o->compile.schedule)) return STATUS_FINE; /* it says both */
  if (o->compile.ranks < 0 || o->compile.microbatches < 0)
    return complain(p, "a schedule without a model needs --ranks=N and --microbatches=N");
  return STATUS_FINE;
}

static int check_files(const Parser *p) {
  const Options *o = p->options;
  if (o->command == COMMAND_DUMP && o->irdl) return o->files.n ? complain(p, "--irdl needs no model") : STATUS_FINE;
  bool csv = o->command == COMMAND_DUMP && o->format == FORMAT_CSV;
  bool may_be_bare = o->command == COMMAND_CHECK || o->command == COMMAND_SIMULATE || csv;
  if (o->files.n == 0 && may_be_bare && o->compile.schedule) return check_bare(p);
  if (o->files.n == 0 && may_be_bare) return complain(p, "no model given, and no --schedule to look at alone");
  if (o->files.n == 0) return complain(p, "no model given: ppc %s %s", commands[o->command].name, commands[o->command].files);
  if (o->files.n > 1 && o->command != COMMAND_FMT) return complain(p, "one model at a time: '%s' and '%s'", o->files.at[0], o->files.at[1]);
  if (o->command == COMMAND_FMT && o->files.n > 1 && !o->write && !o->check)
    return complain(p, "several files need --write or --check");
  return STATUS_FINE;
}

static int check_together(const Parser *p) {
  const Options *o = p->options;
  int status = check_files(p);
  if (status != STATUS_FINE) return status;
  if (o->command == COMMAND_COMPILE && !o->output) return complain(p, "where to? ppc compile %s -o DIR", o->files.at[0]);
  if (o->command == COMMAND_DUMP && o->format == FORMAT_CSV) {
    if (o->after && strcmp(o->after, "schedule") != 0) return complain(p, "--format=csv is of --after=schedule, not of --after=%s", o->after);
    if (o->pretty || o->locations || o->stage >= 0 || o->rank >= 0) return complain(p, "--format=csv prints the whole schedule, in one form");
  }
  bool cuda = o->compile.target == PP_TARGET_CUDA;
  if (cuda && p->cpu_only) return complain(p, "%s means nothing with --target=cuda", p->cpu_only);
  if (!cuda && p->cuda_only) return complain(p, "%s needs --target=cuda", p->cuda_only);
  if (o->compile.keep_transfers && !schedule_is_csv(o->compile.schedule)) return complain(p, "--keep-transfers needs --schedule=FILE.csv");
  if (o->svg && o->html && strcmp(o->svg, o->html) == 0) return complain(p, "--svg and --html name one file: %s", o->svg);
  if (o->trace && !o->svg && !o->html) return complain(p, "--trace draws nothing without --svg or --html");
  if (o->command == COMMAND_FMT && o->write && o->check) return complain(p, "--write and --check exclude each other");
  if (o->has_costs && p->rate) return complain(p, "--cost states costs and %s is for estimates of them: give one", p->rate);
  if (o->has_costs && o->trace_costs) return complain(p, "--cost states costs and --costs measures them: give one");
  if (o->command != COMMAND_RUN) return STATUS_FINE;
  if (p->generates && p->training) return complain(p, "%s means nothing with --generate", p->training);
  if (p->generates && o->json) return complain(p, "--json means nothing with --generate");
  if (!p->generates && p->generating) return complain(p, "%s needs --generate", p->generating);
  return STATUS_FINE;
}

static void set_defaults(Options *o) {
  *o = (Options){.stage = -1, .rank = -1, .stages = -1, .gpu = "h100"};
  o->compile = (CompileOptions){.ranks = -1, .microbatch = -1, .microbatches = -1, .steps = -1, .threads = 1, .products_workspace = -1};
}

static void finish(Parser *p) {
  Options *o = p->options;
  o->compile.n_defines = o->defines.n;
  o->compile.defines = o->defines.at;
  o->compile.n_data = o->data.n;
  o->compile.data = o->data.at;
  if (o->compile.steps == 0) o->compile.steps = -1; /* a run without steps: the file's count stands in its rates */
  if (o->format == FORMAT_PRETTY) o->pretty = true;
  if (o->command == COMMAND_RUN && o->json) VEC_PUSH(p->arena, &o->run_arguments, "--json");
}

/* --- entry --------------------------------------------------------------------------------------------------- */

static int find_command(Parser *p, const char *name) {
  for (int i = 0; i < COMMAND_COUNT; i++) {
    if (strcmp(commands[i].name, name) != 0) continue;
    p->options->command = (Command)i;
    return STATUS_FINE;
  }
  StrGuess guess = str_guess_start(name);
  for (int i = 0; i < COMMAND_COUNT; i++) str_guess_try(&guess, commands[i].name);
  if (guess.best) return complain(p, "unknown command '%s'; did you mean '%s'?", name, guess.best);
  return complain(p, "unknown command '%s'", name);
}

static bool is_help(const char *text) { return strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0 || strcmp(text, "help") == 0; }

/* `--help` anywhere before a lone `--`, except as the value of an option. */
static bool wants_help(int argc, char **argv) {
  for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
  return false;
}

int options_parse(Arena *arena, int argc, char **argv, Options *out_options) {
  set_defaults(out_options);
  Parser p = {.arena = arena, .options = out_options};
  out_options->command = COMMAND_HELP;
  if (argc < 2) {
    fprintf(stderr, "ppc: no command given (see ppc --help)\n");
    return STATUS_USAGE;
  }
  if (is_help(argv[1]) && argc == 2) {
    print_help();
    return STATUS_FINE;
  }
  if (strcmp(argv[1], "--version") == 0) {
    printf("ppc %s\n", PPC_VERSION);
    return STATUS_FINE;
  }
  bool asks = is_help(argv[1]); /* ppc help COMMAND */
  int status = find_command(&p, asks ? argv[2] : argv[1]);
  if (status != STATUS_FINE) return status;
  if (asks || wants_help(argc, argv)) {
    print_command_help(out_options->command);
    out_options->command = COMMAND_HELP;
    return STATUS_FINE;
  }
  status = parse_arguments(&p, argc, argv);
  if (status == STATUS_FINE) status = check_together(&p);
  if (status == STATUS_FINE) finish(&p);
  return status;
}

bool options_want_color(const Options *options, int fd) {
  if (options->color != COLOR_AUTO) return options->color == COLOR_ALWAYS;
  const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
  return isatty(fd) && !(no_color && no_color[0]) && !(term && strcmp(term, "dumb") == 0);
}
