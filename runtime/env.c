/* Who am I? A launcher says so in the environment. The variables of `ppc run` override all others;
 * of the rest a family counts only when it is complete and of the plan's size, so that what a batch
 * job leaves in the environment of a rank it started by hand is not believed. */
#include "internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  const char *title, *rank, *size;
  const char *also;  /* must be set too, or null */
  const char *local; /* number of ranks on this host, or null */
  const char *job[3]; /* variables that tell jobs apart */
} Family;

static const Family own_family = {"ppc run", "PPC_RANK", "PPC_RANKS", NULL, NULL, {"PPC_JOB", NULL, NULL}};

static const Family families[] = {
    {"torchrun", "RANK", "WORLD_SIZE", NULL, "LOCAL_WORLD_SIZE", {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"}},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_STEP_TASKS_PER_NODE", {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL, "OMPI_COMM_WORLD_LOCAL_SIZE", {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", NULL}},
    {"PMI", "PMI_RANK", "PMI_SIZE", NULL, "MPI_LOCALNRANKS", {"PMI_JOBID", NULL, NULL}},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

typedef struct {
  const pp_program *program;
  pp_getenv_fn *get;
  void *context;
  char *text;
  size_t text_bytes;
} Search;

static const char *get(const Search *s, const char *name) {
  const char *value = s->get(name, s->context);
  return value && *value ? value : NULL;
}

static int number(const char *text, int *out_value) {
  uint64_t value;
  if (!pp_parse_u64(text, &value) || value > INT32_MAX) return 0;
  *out_value = (int)value;
  return 1;
}

/* 1: complete and of the plan's size; 0: doesn't count; -1: malformed. */
static int read_family(const Search *s, const Family *f, int *out_rank) {
  const char *rank = get(s, f->rank), *size = get(s, f->size);
  int n;
  if (!rank || !size || (f->also && !get(s, f->also))) return 0;
  if (!number(rank, out_rank) || !number(size, &n)) {
    snprintf(s->text, s->text_bytes, "%s=%.40s, %s=%.40s: not numbers of ranks", f->rank, rank, f->size, size);
    return -1;
  }
  return n == s->program->n_ranks && *out_rank < n;
}

static void append(char *text, size_t text_bytes, const char *more) {
  size_t used = strlen(text);
  snprintf(text + used, text_bytes - used, "%s", more);
}

/* --- the job's name ------------------------------------------------------------------------------ */

/* Keeps what a file name may hold; other bytes become '_'. */
static void sanitise(char *text) {
  for (; *text; text++) {
    int fine = (*text >= '0' && *text <= '9') || (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
               *text == '-' || *text == '.';
    if (!fine) *text = '_';
  }
}

/* All ranks that one launcher started on this host have one parent: the last resort. */
static void name_job(pp_job *out_launch, const Search *s, const char *job, const Family *f) {
  char text[512] = "";
  if (job) append(text, sizeof text, job);
  for (int i = 0; f && !job && i < 3 && f->job[i]; i++) {
    const char *value = get(s, f->job[i]);
    if (!value) continue;
    if (text[0]) append(text, sizeof text, "-");
    append(text, sizeof text, value);
  }
  if (!text[0]) snprintf(text, sizeof text, "p%ld", (long)getppid());
  uint64_t mix = pp_hash_name(text) ^ s->program->plan_hash * UINT64_C(0x9e3779b97f4a7c15);
  sanitise(text);
  snprintf(out_launch->job, sizeof out_launch->job, "%lu-%.40s-%016llx", (unsigned long)geteuid(), text,
           (unsigned long long)mix);
}

/* --- one host ------------------------------------------------------------------------------------ */

static int64_t parse_count(const char **at) {
  int64_t value = 0;
  if (**at < '0' || **at > '9') return -1;
  for (; **at >= '0' && **at <= '9'; ++*at) {
    value = value * 10 + (**at - '0');
    if (value > INT32_MAX) return -1;
  }
  return value;
}

/* "2(x3),1": three nodes of two tasks and one of one. A plain number is one node. */
int pp_parse_tasks_per_node(const char *text, int64_t *out_tasks, int64_t *out_nodes) {
  *out_tasks = *out_nodes = 0;
  for (;;) {
    int64_t count = parse_count(&text), times = 1;
    if (count < 0) return 0;
    if (text[0] == '(' && text[1] == 'x') {
      text += 2;
      times = parse_count(&text);
      if (times < 0 || *text++ != ')') return 0;
    }
    *out_tasks += count * times;
    *out_nodes += times;
    if (*out_tasks > INT32_MAX || *out_nodes > INT32_MAX) return 0;
    if (!*text) return 1;
    if (*text++ != ',') return 0;
  }
}

/* Ranks share memory, so all must be on this host; said at once rather than after a time-out. */
static int check_host(const Search *s, const Family *f) {
  const char *local = f->local ? get(s, f->local) : NULL;
  int64_t tasks, nodes;
  if (!local) return 1;
  if (!pp_parse_tasks_per_node(local, &tasks, &nodes)) {
    snprintf(s->text, s->text_bytes, "%s=%.60s: not understood", f->local, local);
    return 0;
  }
  if (nodes == 1 && tasks == s->program->n_ranks) return 1;
  snprintf(s->text, s->text_bytes, "%s=%.60s: not all %d ranks are on one host, but they pass data in shared memory", f->local, local,
           s->program->n_ranks);
  return 0;
}

/* --- the search ---------------------------------------------------------------------------------- */

static int accept(pp_job *out_launch, const Search *s, const char *job, const Family *f, int rank) {
  if (rank != s->program->rank) {
    snprintf(s->text, s->text_bytes, "this program is rank %d of %d of %s, but %s=%d: start rank_%d there", s->program->rank,
             s->program->n_ranks, s->program->model, f->rank, rank, rank);
    return 0;
  }
  if (!check_host(s, f)) return 0;
  out_launch->rank = rank;
  out_launch->n_ranks = s->program->n_ranks;
  name_job(out_launch, s, job, f);
  return 1;
}

/* launch.sh names the plan that it was emitted with; a program may have been built before. */
static int check_plan(const Search *s) {
  const char *plan = get(s, "PPC_PLAN");
  char own[17];
  snprintf(own, sizeof own, "%016llx", (unsigned long long)s->program->plan_hash);
  if (!plan || strcmp(plan, own) == 0) return 1;
  snprintf(s->text, s->text_bytes, "rank_%d was built from another plan than launch.sh: run make", s->program->rank);
  return 0;
}

static int accept_own(pp_job *out_launch, const Search *s, const char *job) {
  if (!check_plan(s)) return 0;
  int rank, found = read_family(s, &own_family, &rank);
  if (found < 0) return 0;
  if (!found) {
    snprintf(s->text, s->text_bytes, "PPC_RANK=%.20s and PPC_RANKS=%.20s don't fit this program, which is rank %d of %d",
             get(s, "PPC_RANK"), get(s, "PPC_RANKS") ? get(s, "PPC_RANKS") : "(unset)", s->program->rank, s->program->n_ranks);
    return 0;
  }
  return accept(out_launch, s, job, &own_family, rank);
}

/* What was set but doesn't count, so that the user sees why. */
static int refuse_nothing(const Search *s) {
  snprintf(s->text, s->text_bytes,
           "this is rank %d of %d ranks, and no launcher says so. Looked for complete families of size %d:", s->program->rank,
           s->program->n_ranks, s->program->n_ranks);
  for (int i = -1; i < N_FAMILIES; i++) {
    const Family *f = i < 0 ? &own_family : &families[i];
    const char *rank = get(s, f->rank), *size = get(s, f->size);
    char part[256];
    snprintf(part, sizeof part, "%s %s=%.20s %s=%.20s%s%s%s", i < 0 ? "" : ";", f->rank, rank ? rank : "(unset)", f->size,
             size ? size : "(unset)", f->also ? " " : "", f->also ? f->also : "", f->also && !get(s, f->also) ? "=(unset)" : "");
    append(s->text, s->text_bytes, part);
  }
  append(s->text, s->text_bytes, ". Start all ranks with launch.sh, ppc run, mpiexec or srun");
  return 0;
}

static int refuse_two(const Search *s, const Family *a, int rank_a, const Family *b, int rank_b) {
  snprintf(s->text, s->text_bytes, "two launchers disagree: %s=%d (%s) and %s=%d (%s); unset one of them", a->rank, rank_a,
           a->title, b->rank, rank_b, b->title);
  return 0;
}

int pp_launch_find(pp_job *out_launch, const pp_program *program, const char *job, pp_getenv_fn *getter, void *context,
                   char *out_text, size_t text_bytes) {
  Search s = {program, getter, context, out_text, text_bytes};
  const Family *chosen = NULL;
  int chosen_rank = 0;
  if (get(&s, "PPC_RANK")) return accept_own(out_launch, &s, job);
  if (program->n_ranks == 1) {
    out_launch->rank = 0;
    out_launch->n_ranks = 1;
    name_job(out_launch, &s, job, NULL);
    return 1;
  }
  for (int i = 0; i < N_FAMILIES; i++) {
    int rank, found = read_family(&s, &families[i], &rank);
    if (found < 0) return 0;
    if (!found) continue;
    if (chosen && rank != chosen_rank) return refuse_two(&s, chosen, chosen_rank, &families[i], rank);
    if (!chosen) chosen_rank = rank;
    if (!chosen) chosen = &families[i];
  }
  if (!chosen) return refuse_nothing(&s);
  return accept(out_launch, &s, job, chosen, chosen_rank);
}
