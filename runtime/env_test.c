#include <stdint.h>

#include "internal.h"
#include "test.h"

/* An environment: name, value, …, NULL. */
static const char *look_up(const char *name, void *context) {
  for (const char *const *at = context; *at; at += 2) {
    if (strcmp(at[0], name) == 0) return at[1];
  }
  return NULL;
}

static pp_job launch;
static char text[2048];

static int find(int rank, int n_ranks, const char *const *environment) {
  pp_program program = {.rank = rank, .n_ranks = n_ranks, .model = "m.pp", .plan_hash = 5};
  memset(&launch, 0, sizeof launch);
  text[0] = 0;
  return pp_launch_find(&launch, &program, NULL, look_up, (void *)(size_t)environment, text, sizeof text);
}

#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})

static void one_rank_needs_nothing(void) {
  CHECK(find(0, 1, ENV("X", "Y")));
  CHECK(find(0, 1, ENV("SLURM_PROCID", "0", "SLURM_NTASKS", "1", "RANK", "7", "WORLD_SIZE", "8")));
}

static void each_family_is_found(void) {
  CHECK(find(1, 2, ENV("RANK", "1", "WORLD_SIZE", "2")));
  CHECK(find(1, 2, ENV("SLURM_PROCID", "1", "SLURM_NTASKS", "2", "SLURM_STEP_ID", "0", "SLURM_JOB_ID", "77")));
  CHECK_TEXT(launch.job, "77-0");
  CHECK(find(1, 2, ENV("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2")));
  CHECK(find(1, 2, ENV("PMI_RANK", "1", "PMI_SIZE", "2")));
  CHECK(find(1, 2, ENV("PPC_RANK", "1", "PPC_RANKS", "2", "PPC_JOB", "a/b c")));
  CHECK_TEXT(launch.job, "a_b_c");
}

static void nothing_lists_what_was_looked_for(void) {
  CHECK(!find(0, 4, ENV("X", "Y")));
  CHECK_TEXT(text, "SLURM_PROCID=(unset)");
  CHECK_TEXT(text, "OMPI_COMM_WORLD_RANK");
}

/* A batch job with one task starts four ranks itself: what it inherited doesn't count. */
static void inherited_slurm_is_not_believed(void) {
  CHECK(!find(0, 4, ENV("SLURM_JOB_ID", "7", "SLURM_PROCID", "0", "SLURM_NTASKS", "1", "SLURM_STEP_ID", "0")));
  CHECK_TEXT(text, "SLURM_NTASKS=1");
  CHECK(find(3, 4, ENV("SLURM_PROCID", "0", "SLURM_NTASKS", "1", "SLURM_STEP_ID", "0", "PMI_RANK", "3", "PMI_SIZE", "4")));
  CHECK(!find(0, 4, ENV("SLURM_PROCID", "0", "SLURM_NTASKS", "4"))); /* without a step: the batch script's own */
}

static void own_variables_override(void) {
  CHECK(find(2, 4, ENV("PPC_RANK", "2", "PPC_RANKS", "4", "RANK", "0", "WORLD_SIZE", "4", "SLURM_PROCID", "1", "SLURM_NTASKS",
                       "4", "SLURM_STEP_ID", "0")));
  CHECK(find(2, 4, ENV("PPC_RANK", "2", "PPC_RANKS", "4", "PPC_PLAN", "0000000000000005")));
  CHECK(!find(2, 4, ENV("PPC_RANK", "2", "PPC_RANKS", "4", "PPC_PLAN", "0000000000000001")));
  CHECK_TEXT(text, "rank_2 was built from another plan than launch.sh: run make");
  CHECK(!find(2, 4, ENV("PPC_RANK", "2", "PPC_RANKS", "8")));
  CHECK_TEXT(text, "PPC_RANKS=8");
  CHECK(!find(2, 4, ENV("PPC_RANK", "2")));
}

static void two_that_disagree_are_an_error(void) {
  CHECK(!find(1, 4, ENV("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "4", "SLURM_PROCID", "0", "SLURM_NTASKS", "4",
                        "SLURM_STEP_ID", "0")));
  CHECK_TEXT(text, "OMPI_COMM_WORLD_RANK=1");
  CHECK_TEXT(text, "SLURM_PROCID=0");
  CHECK(find(1, 4, ENV("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "4", "PMI_RANK", "1", "PMI_SIZE", "4")));
}

static void wrong_program_is_named(void) {
  CHECK(!find(1, 4, ENV("RANK", "3", "WORLD_SIZE", "4")));
  CHECK_TEXT(text, "rank 1 of 4");
  CHECK_TEXT(text, "rank_3");
}

static void numbers_are_whole(void) {
  uint64_t u;
  int64_t i;
  double d;
  static const char *const bad[] = {"", " 1", "1 ", "-1", "+1", "1x", "0x10", "18446744073709551616", "99999999999999999999"};
  for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) CHECK(!pp_parse_u64(bad[k], &u));
  CHECK(pp_parse_u64("18446744073709551615", &u) && u == UINT64_MAX);
  CHECK(!pp_parse_i64("9223372036854775808", &i));
  CHECK(pp_parse_i64("9223372036854775807", &i) && i == INT64_MAX);
  CHECK(pp_parse_f64("0.5", &d) && d == 0.5);
  CHECK(!pp_parse_f64("nan", &d) && !pp_parse_f64("inf", &d) && !pp_parse_f64("1e999", &d) && !pp_parse_f64("-1", &d));
  CHECK(!find(0, 4, ENV("RANK", "4294967296", "WORLD_SIZE", "4")));
  CHECK(!find(0, 4, ENV("RANK", "0x", "WORLD_SIZE", "4")));
  CHECK_TEXT(text, "RANK=0x");
}

static void slurm_counts_are_parsed(void) {
  int64_t tasks, nodes;
  CHECK(pp_parse_tasks_per_node("2(x3),1", &tasks, &nodes) && tasks == 7 && nodes == 4);
  CHECK(pp_parse_tasks_per_node("1(x2)", &tasks, &nodes) && tasks == 2 && nodes == 2);
  CHECK(pp_parse_tasks_per_node("4", &tasks, &nodes) && tasks == 4 && nodes == 1);
  static const char *const bad[] = {"", "(x2)", "2(x", "2(x3", "2(x3),", "4294967296", "2147483647(x2147483647)", "a", "1,,2", "1 "};
  for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) CHECK(!pp_parse_tasks_per_node(bad[k], &tasks, &nodes));
}

static void ranks_on_two_hosts_are_refused(void) {
  CHECK(!find(1, 2, ENV("SLURM_PROCID", "1", "SLURM_NTASKS", "2", "SLURM_STEP_ID", "0", "SLURM_STEP_TASKS_PER_NODE", "1(x2)")));
  CHECK_TEXT(text, "SLURM_STEP_TASKS_PER_NODE=1(x2)");
  CHECK(find(1, 2, ENV("SLURM_PROCID", "1", "SLURM_NTASKS", "2", "SLURM_STEP_ID", "0", "SLURM_STEP_TASKS_PER_NODE", "2")));
  CHECK(!find(1, 2, ENV("SLURM_PROCID", "1", "SLURM_NTASKS", "2", "SLURM_STEP_ID", "0", "SLURM_STEP_TASKS_PER_NODE", "2(x")));
  CHECK(!find(1, 2, ENV("RANK", "1", "WORLD_SIZE", "2", "LOCAL_WORLD_SIZE", "1")));
  CHECK(find(1, 2, ENV("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_LOCAL_SIZE", "2")));
}

static void long_values_do_not_overflow(void) {
  static char big[5000];
  memset(big, '9', sizeof big - 1);
  CHECK(!find(0, 4, ENV("RANK", big, "WORLD_SIZE", big)));
  CHECK(find(0, 4, ENV("PPC_RANK", "0", "PPC_RANKS", "4", "PPC_JOB", big)));
  CHECK(strlen(launch.job) < PP_JOB_BYTES);
}

int main(void) {
  TEST(one_rank_needs_nothing);
  TEST(each_family_is_found);
  TEST(nothing_lists_what_was_looked_for);
  TEST(inherited_slurm_is_not_believed);
  TEST(own_variables_override);
  TEST(two_that_disagree_are_an_error);
  TEST(wrong_program_is_named);
  TEST(numbers_are_whole);
  TEST(slurm_counts_are_parsed);
  TEST(ranks_on_two_hosts_are_refused);
  TEST(long_values_do_not_overflow);
  return test_failures != 0;
}
