/* What starts the programs of either target, and what their Makefiles have in common. In: the plan, the files
 * made so far. Out: launch.sh, mpmd.conf (srun), mpiexec.conf; lists and rules for Makefiles. */
#include <string.h>

#include "codegen/parts.h"

/* --- parts of a Makefile ------------------------------------------------------------------------------ */

bool emit_is_of_one_rank(const char *path) { return str_starts_with(path, "stage_") || str_starts_with(path, "rank_"); }

void emit_list(Str *out, const char *name, const EmitFiles *files, bool (*takes)(const char *path)) {
  str_printf(out, "%s =", name);
  for (int i = 0; i < files->n; i++) {
    const char *path = files->at[i].path;
    if (!takes(path)) continue;
    if (emit_column(out) + (int)strlen(path) + 3 > EMIT_COLUMNS) str_puts(out, " \\\n ");
    str_printf(out, " %s", path);
  }
  str_putc(out, '\n');
}

void emit_programs(Str *out, const Plan *plan) {
  str_puts(out, "PROGRAMS :=");
  for (int r = 0; r < plan->n_ranks; r++) {
    if (emit_column(out) > EMIT_COLUMNS - 20) str_puts(out, " \\\n ");
    str_printf(out, " $(OUT)rank_%d", r);
  }
  str_puts(out, "\n\nall: $(PROGRAMS)\n\n");
}

void emit_prerequisites(Str *out, const Plan *plan) {
  for (int r = 0; r < plan->n_ranks; r++) {
    str_printf(out, "$(OUT)rank_%d: $(BUILD)/rank_%d.o", r, r);
    for (int s = 0; s < plan->n_stages; s++) {
      if (plan->stages[s].rank != r) continue;
      if (emit_column(out) > EMIT_COLUMNS - 24) str_puts(out, " \\\n ");
      str_printf(out, " $(BUILD)/stage_%d.o", s);
    }
    str_puts(out, " $(COMMON)\n");
  }
}

/* --- launching ----------------------------------------------------------------------------------------- */

static void emit_mpiexec_line(Str *out, int n_ranks) {
  for (int r = 0; r < n_ranks && r < 4; r++) str_printf(out, "%s -n 1 ./rank_%d", r ? " :" : "", r);
  if (n_ranks > 4) str_puts(out, " : …");
}

static const char launch_head[] =
    "#\n"
    "#   make && ./launch.sh [options of the programs; --help lists them]\n"
    "#\n"
    "# A launcher of the site starts the same programs, one rank each:\n"
    "#   srun -K1 --wait=10 -n RANKS --multi-prog mpmd.conf\n"
    "#   mpiexec -configfile mpiexec.conf                                    (MPICH)\n"
    "#   mpirun --bind-to none --oversubscribe --app mpiexec.conf            (Open MPI; root: --allow-run-as-root)\n";

static const char launch_starts[] =
    "[ -x \"$here/rank_0\" ] || { echo \"launch.sh: $here/rank_0 is not built: run make first\" >&2; exit 1; }\n"
    "PPC_JOB=launch-$$-$(date +%s)\n"
    "PPC_SAME_OPTIONS=1 # rank 0 tells what is wrong with them\n"
    "export PPC_RANKS PPC_JOB PPC_PLAN PPC_SAME_OPTIONS\n"
    "\n"
    "# Ranks in the background ignore Ctrl-C: they are told otherwise.\n"
    "pids= status=0\n"
    "trap 'status=130; kill -TERM $pids 2>/dev/null' INT\n"
    "trap 'status=143; kill -TERM $pids 2>/dev/null' TERM HUP\n"
    "rank=0\n"
    "while [ $rank -lt $PPC_RANKS ]; do\n";

static const char launch_waits[] =
    "PPC_RANK=$rank \"$here/rank_$rank\" \"$@\" &\n"
    "  pids=\"$pids $!\"\n"
    "  rank=$((rank + 1))\n"
    "done\n"
    "\n"
    "# The first bad status is the job's. A signal interrupts `wait`: then wait again.\n"
    "for pid in $pids; do\n"
    "  wait $pid\n"
    "  one=$?\n"
    "  while kill -0 $pid 2>/dev/null; do\n"
    "    wait $pid\n"
    "    one=$?\n"
    "  done\n"
    "  [ $status -ne 0 ] || status=$one\n"
    "done\n"
    "exit $status\n";

static void add_executable(Arena *arena, EmitFiles *files, const char *path, Str *text) {
  emit_add(arena, files, path, text);
  VEC_LAST(files).executable = true;
}

static void emit_launch(Arena *arena, const Plan *plan, const char *setup, const char *variables, EmitFiles *files) {
  Str out = {0};
  str_puts(&out, "#!/bin/sh\n# Starts all ranks of ");
  emit_comment(&out, plan->model);
  str_printf(&out, " on this host. Emitted by ppc.\n%s#   mpiexec", launch_head);
  emit_mpiexec_line(&out, plan->n_ranks);
  str_printf(&out, "\nPPC_RANKS=%d PPC_PLAN=%016llx\nhere=$(cd \"$(dirname \"$0\")\" && pwd)\n%s%s  %s%s", plan->n_ranks, (unsigned long long)plan->hash, setup, launch_starts,
             variables, launch_waits);
  add_executable(arena, files, "launch.sh", &out);
}

static void emit_mpmd(Arena *arena, const Plan *plan, EmitFiles *files) {
  Str srun = {0}, mpiexec = {0};
  str_printf(&srun, "# srun -K1 --wait=10 -n %d --multi-prog mpmd.conf\n", plan->n_ranks);
  for (int r = 0; r < plan->n_ranks; r++) {
    str_printf(&srun, "%d ./rank_%d\n", r, r);
    str_printf(&mpiexec, "-n 1 ./rank_%d\n", r);
  }
  emit_add(arena, files, "mpmd.conf", &srun);
  emit_add(arena, files, "mpiexec.conf", &mpiexec);
}

void emit_launch_files(Arena *arena, const Plan *plan, const char *setup, const char *variables, EmitFiles *files) {
  emit_launch(arena, plan, setup, variables, files);
  emit_mpmd(arena, plan, files);
}
