/* The options of emitted programs: one table for parsing and for --help. */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- numbers ------------------------------------------------------------------------------------ */

int pp_parse_u64(const char *text, uint64_t *out_value) {
  uint64_t value = 0;
  if (!*text) return 0;
  for (; *text; text++) {
    if (*text < '0' || *text > '9') return 0;
    uint64_t digit = (uint64_t)(*text - '0');
    if (value > (UINT64_MAX - digit) / 10) return 0;
    value = value * 10 + digit;
  }
  *out_value = value;
  return 1;
}

int pp_parse_i64(const char *text, int64_t *out_value) {
  uint64_t value;
  if (!pp_parse_u64(text, &value) || value > INT64_MAX) return 0;
  *out_value = (int64_t)value;
  return 1;
}

int pp_parse_f64(const char *text, double *out_value) {
  char *end;
  if (!(*text >= '0' && *text <= '9') && *text != '.') return 0;
  errno = 0;
  double value = strtod(text, &end);
  if (*end || errno == ERANGE || !isfinite(value) || value < 0) return 0;
  *out_value = value;
  return 1;
}

/* --- the table ---------------------------------------------------------------------------------- */

typedef enum { OPTION_FLAG, OPTION_U64, OPTION_I64, OPTION_COUNT, OPTION_INT, OPTION_SECONDS, OPTION_REAL, OPTION_TEXT, OPTION_DATA, OPTION_STEPS } Kind;
typedef enum { IN_BOTH, IN_TRAIN, IN_GENERATE, ON_CPU, ON_GPU, HIDDEN } Where;

typedef enum { OWN, SAME } Share; /* SAME: all ranks of a job must have one value */

typedef struct {
  const char *name, *argument;
  Kind kind;
  Where where;
  Share share;
  size_t at; /* offset in pp_options */
  const char *help;
} Option;

#define AT(field) offsetof(pp_options, field)

static const Option options_table[] = {
    {"--steps", "N", OPTION_I64, IN_TRAIN, SAME, AT(steps), "steps to make; 0 saves the initial values"},
    {"--seed", "N", OPTION_U64, IN_BOTH, SAME, AT(seed), "seed of initial values, data order and random numbers"},
    {"--data", "NAME=PATH", OPTION_DATA, IN_BOTH, SAME, 0, "read a data source from another file"},
    {"--init", "FILE", OPTION_TEXT, IN_BOTH, SAME, AT(init), "start from the parameters in a safetensors file"},
    {"--save", "FILE", OPTION_TEXT, IN_TRAIN, SAME, AT(save), "write the parameters there at the end"},
    {"--save-gradients", "FILE", OPTION_TEXT, IN_TRAIN, SAME, AT(save_gradients),
     "write the last step's gradients, those of its loss, before the clip"},
    {"--trace", "FILE", OPTION_TEXT, IN_TRAIN, SAME, AT(trace), "write what each rank did when, for Perfetto and ppc simulate"},
    {"--trace-steps", "A:B", OPTION_STEPS, IN_TRAIN, SAME, AT(trace_steps), "trace steps A to B (the last 10)"},
    {"--graph", NULL, OPTION_FLAG, ON_GPU, SAME, AT(graph), "capture the step in a CUDA graph, and launch that"},
    {"--json", NULL, OPTION_FLAG, IN_TRAIN, SAME, AT(json), "print one JSON object per step and one at the end"},
    {"--log-every", "N", OPTION_COUNT, IN_TRAIN, SAME, AT(log_every), "print a line for every N-th step, and the last one (1)"},
    {"--quiet", NULL, OPTION_FLAG, IN_BOTH, OWN, AT(quiet), "print no line per step"},
    {"--timeout", "SECONDS", OPTION_SECONDS, IN_BOTH, OWN, AT(timeout_s),
     "end the job when a rank is gone or nothing moves for so long; 0: never (5)"},
    {"--start-timeout", "SECONDS", OPTION_SECONDS, IN_BOTH, OWN, AT(start_timeout_s), "wait so long for all ranks to start (60)"},
    {"--threads", "N", OPTION_INT, ON_CPU, OWN, AT(threads), "threads of each rank's matrix products"},
    {"--shm-dir", "DIR", OPTION_TEXT, IN_BOTH, OWN, AT(shm_dir), "where shared memory is made (/dev/shm)"},
    {"--job", "NAME", OPTION_TEXT, IN_BOTH, OWN, AT(job), "name of the job, the same for all its ranks"},
    {"--transport", "NAME", OPTION_TEXT, ON_GPU, SAME, AT(transport),
     "nccl; host: through the host's memory; or auto: NCCL, unless ranks share a GPU (auto)"},
    {"--transport", "NAME", OPTION_TEXT, HIDDEN, SAME, AT(transport), "self, shm, late or strict"},
    {"--generate", "N", OPTION_I64, IN_GENERATE, SAME, AT(generate), "print N bytes, or numbers of tokens (256)"},
    {"--prompt", "TEXT", OPTION_TEXT, IN_GENERATE, SAME, AT(prompt), "text to go on from; numbers for more than 256 tokens"},
    {"--temperature", "T", OPTION_REAL, IN_GENERATE, SAME, AT(temperature), "0 takes the likeliest token (1)"},
    {"--top-k", "K", OPTION_I64, IN_GENERATE, SAME, AT(top_k), "draw among the K likeliest; 0: all (0)"},
};
enum { N_OPTIONS = sizeof options_table / sizeof *options_table };
_Static_assert((int)N_OPTIONS <= PP_MAX_OPTIONS, "a slot of the board has a place for each");

static int applies(const Option *o, const pp_program *program) {
  if (o->where == ON_CPU || o->where == ON_GPU) return strcmp(program->device->name, o->where == ON_GPU ? "cuda" : "cpu") == 0;
  return o->where == IN_BOTH || o->where == HIDDEN || (o->where == IN_GENERATE) == (program->generate != 0);
}

/* A launcher that gives all ranks one command line says so; then rank 0 tells for all what is wrong with it. */
int pp_options_are_told(const pp_program *program) { return program->rank == 0 || !getenv("PPC_SAME_OPTIONS"); }

static void print_help(const pp_program *program) {
  printf("Rank %d of %d of %s, a program that ppc wrote.\n\nOptions:\n", program->rank, program->n_ranks, program->model);
  for (size_t i = 0; i < N_OPTIONS; i++) {
    const Option *o = &options_table[i];
    char left[64];
    if (o->where == HIDDEN || !applies(o, program)) continue;
    snprintf(left, sizeof left, "%s%s%s", o->name, o->argument ? "=" : "", o->argument ? o->argument : "");
    printf("  %-26s %s\n", left, o->help);
  }
  printf("\nA launcher (ppc run, mpiexec, srun, torchrun-style variables) tells each rank who it is.\n"
         "Exit status: 0 fine, 1 wrong input, 2 usage, 3 a fault of ppc, 4 the run failed, 128+n ended by signal n.\n");
}

/* --- parsing ------------------------------------------------------------------------------------ */

static int complain(const pp_program *program, const char *text, const char *what) {
  if (pp_options_are_told(program)) fprintf(stderr, "ppc: %s: %s (--help lists the options)\n", text, what);
  return PP_EXIT_USAGE;
}

static int set_data(pp_options *options, const pp_program *program, const char *argument, const char *value) {
  const char *equals = strchr(value, '=');
  if (!equals || equals == value || !equals[1]) return complain(program, argument, "expected --data=NAME=PATH");
  for (int i = 0; i < program->n_data; i++) {
    if (strlen(program->data[i].name) != (size_t)(equals - value)) continue;
    if (memcmp(program->data[i].name, value, (size_t)(equals - value)) != 0) continue;
    if (!program->data[i].path) return complain(program, argument, "that source is synthetic: it has no file");
    options->data[i] = equals + 1;
    return -1;
  }
  return complain(program, argument, "the program has no data source of that name");
}

static int set_int(const pp_program *program, void *field, const char *argument, const char *value) {
  int64_t number;
  if (!pp_parse_i64(value, &number) || number < 1 || number > 4096) return complain(program, argument, "expected a number from 1 to 4096");
  *(int *)field = (int)number;
  return -1;
}

static int set_count(const pp_program *program, int64_t *field, const char *argument, const char *value) {
  return pp_parse_i64(value, field) && *field > 0 ? -1 : complain(program, argument, "expected a number from 1 up");
}

/* "A:B", or "A" for one step. */
static int set_steps(const pp_program *program, pp_steps *steps, const char *argument, const char *value) {
  char first[32];
  size_t n = strcspn(value, ":");
  snprintf(first, sizeof first, "%.*s", (int)n, value);
  int fine = n < sizeof first && pp_parse_i64(first, &steps->first) && pp_parse_i64(value[n] ? value + n + 1 : first, &steps->last);
  if (fine && steps->first >= 1 && steps->last >= steps->first) return -1;
  return complain(program, argument, "expected A:B, steps from 1 up");
}

static int set_value(pp_options *options, const pp_program *program, const Option *o, const char *argument, const char *value) {
  void *field = (char *)options + o->at;
  switch (o->kind) {
    case OPTION_FLAG: *(int *)field = 1; return -1;
    case OPTION_U64: return pp_parse_u64(value, field) ? -1 : complain(program, argument, "expected a number below 2^64");
    case OPTION_I64: return pp_parse_i64(value, field) ? -1 : complain(program, argument, "expected a number below 2^63");
    case OPTION_COUNT: return set_count(program, field, argument, value);
    case OPTION_INT: return set_int(program, field, argument, value);
    case OPTION_SECONDS: return pp_parse_f64(value, field) && *(double *)field < 1e9 ? -1 : complain(program, argument, "expected seconds");
    case OPTION_REAL: return pp_parse_f64(value, field) ? -1 : complain(program, argument, "expected a number, not negative");
    case OPTION_TEXT: *(const char **)field = value; return *value ? -1 : complain(program, argument, "empty");
    case OPTION_DATA: return set_data(options, program, argument, value);
    case OPTION_STEPS: return set_steps(program, field, argument, value);
  }
  return complain(program, argument, "unknown option");
}

static const Option *find_option(const char *argument, const pp_program *program) {
  size_t n = strcspn(argument, "=");
  for (size_t i = 0; i < N_OPTIONS; i++) {
    const Option *o = &options_table[i];
    if (strlen(o->name) == n && memcmp(o->name, argument, n) == 0 && applies(o, program)) return o;
  }
  return NULL;
}

static int complain_unknown(const pp_program *program, const char *argument) {
  size_t n = strcspn(argument, "=");
  for (size_t i = 0; i < N_OPTIONS; i++) {
    const Option *o = &options_table[i];
    if (strlen(o->name) != n || memcmp(o->name, argument, n) != 0) continue;
    if (o->where == ON_CPU) return complain(program, argument, "means nothing to a program for GPUs");
    if (o->where == ON_GPU) return complain(program, argument, "means nothing to a program for CPUs");
  }
  return complain(program, argument, "unknown option");
}

/* "--name=value", or "--name value". */
static int parse_one(pp_options *options, const pp_program *program, int argc, char **argv, int *at) {
  const char *argument = argv[*at];
  const Option *o = find_option(argument, program);
  const char *value = strchr(argument, '=');
  if (!o) return complain_unknown(program, argument);
  if (o->kind == OPTION_FLAG) return value ? complain(program, argument, "takes no value") : set_value(options, program, o, argument, "");
  if (value) return set_value(options, program, o, argument, value + 1);
  if (*at + 1 >= argc) return complain(program, argument, "needs a value");
  return set_value(options, program, o, argument, argv[++*at]);
}

static void set_defaults(pp_options *options, const pp_program *program) {
  memset(options, 0, sizeof *options);
  options->steps = program->steps;
  options->seed = program->seed;
  options->threads = program->threads > 0 ? program->threads : 1;
  options->timeout_s = 5;
  options->start_timeout_s = 60;
  options->log_every = 1;
  options->generate = 256;
  options->temperature = 1;
}

int pp_options_parse(pp_options *out_options, const pp_program *program, int argc, char **argv) {
  set_defaults(out_options, program);
  out_options->data = calloc((size_t)program->n_data + 1, sizeof *out_options->data);
  if (!out_options->data) return PP_EXIT_FAILED;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--help") == 0) {
      if (pp_options_are_told(program)) print_help(program);
      return PP_EXIT_FINE;
    }
    int status = parse_one(out_options, program, argc, argv, &i);
    if (status >= 0) return status;
  }
  return -1;
}

/* --- one value for all ranks ----------------------------------------------------------------------- */

static uint64_t text_digest(const char *text) { return text ? pp_hash_name(text) : 0; }

static uint64_t digest(const pp_options *options, const pp_program *program, const Option *o) {
  const void *field = (const char *)options + o->at;
  uint64_t sum = 0;
  switch (o->kind) {
    case OPTION_FLAG:
    case OPTION_INT: return (uint64_t) * (const int *)field;
    case OPTION_U64:
    case OPTION_COUNT:
    case OPTION_I64: return *(const uint64_t *)field;
    case OPTION_SECONDS:
    case OPTION_REAL: memcpy(&sum, field, sizeof sum); return sum;
    case OPTION_TEXT: return text_digest(*(const char *const *)field);
    case OPTION_STEPS: return ((const uint64_t *)field)[0] * 31 + ((const uint64_t *)field)[1];
    case OPTION_DATA:
      for (int i = 0; i < program->n_data; i++) sum = sum * 31 + text_digest(options->data[i]);
      return sum;
  }
  return 0;
}

void pp_options_publish(const pp_options *options, const pp_program *program, uint64_t *out_digests) {
  for (size_t i = 0; i < N_OPTIONS; i++) {
    const Option *o = &options_table[i];
    out_digests[i] = o->share == SAME && applies(o, program) ? digest(options, program, o) : 0;
  }
}

const char *pp_options_differ(const uint64_t *a, const uint64_t *b) {
  for (size_t i = 0; i < N_OPTIONS; i++) {
    if (a[i] != b[i]) return options_table[i].name;
  }
  return NULL;
}

void pp_options_destroy(pp_options *options) {
  free(options->data);
  options->data = NULL;
}
