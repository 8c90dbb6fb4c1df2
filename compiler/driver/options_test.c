/* The command line: what is accepted, what is set, what is refused. */
#include "compiler/driver/options.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int failures;
static void result(bool fine, const char *name) {
  printf("%s %s\n", fine ? "ok" : "FAIL", name);
  failures += !fine;
}

static Arena *arena;
static Options options;

/* Parses "check x.pp --ranks=2", split at blanks; what it prints is thrown away. */
static int parse(const char *line) {
  char *argv[32] = {"ppc"};
  int argc = 1;
  for (char *word = strtok(arena_strdup(arena, line), " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
  fflush(stdout);
  int kept_out = dup(1), kept_err = dup(2), null = open("/dev/null", O_WRONLY);
  dup2(null, 1), dup2(null, 2), close(null);
  int status = options_parse(arena, argc, argv, &options);
  fflush(stdout);
  dup2(kept_out, 1), dup2(kept_err, 2), close(kept_out), close(kept_err);
  return status;
}

static bool refused(const char *line) { return parse(line) == STATUS_USAGE; }
static bool accepted(const char *line) { return parse(line) == STATUS_FINE; }

static void try_values(void) {
  result(accepted("check m.pp") && options.compile.ranks == -1 && options.compile.threads == 1 && !options.compile.has_seed,
         "what isn't given is the file's");
  result(accepted("check m.pp --ranks=4 --microbatch 2 --microbatches=8 --schedule=gpipe --dtype f64") && options.compile.ranks == 4 &&
             options.compile.microbatch == 2 && options.compile.microbatches == 8 && strcmp(options.compile.schedule, "gpipe") == 0 &&
             strcmp(options.compile.dtype, "f64") == 0,
         "values stand behind = or a blank");
  result(accepted("check -D a=1 -Db=2 --define=c=[1,2] m.pp") && options.compile.n_defines == 3 &&
             strcmp(options.compile.defines[1].name, "b") == 0 && strcmp(options.compile.defines[2].value, "[1,2]") == 0,
         "-D in its three forms");
  result(accepted("check m.pp --seed=18446744073709551615") && options.compile.has_seed && options.compile.seed == -1, "a seed has 64 bits");
  result(accepted("check m.pp --data text=/a/b") && strcmp(options.compile.data[0].path, "/a/b") == 0, "a data path");
  result(accepted("check m.pp --data text=b") && options.compile.data[0].path[0] == '/', "a data path is meant from here");
  result(accepted("compile m.pp -oout") && strcmp(options.output, "out") == 0, "-oDIR");
  result(accepted("fmt -i a.pp b.pp") && options.write && options.files.n == 2, "fmt -i takes files");
  result(accepted("check -- --odd.pp") && strcmp(options.files.at[0], "--odd.pp") == 0, "-- ends the options");
  static const struct {
    const char *line;
    int64_t bytes;
  } memory[] = {{"check m.pp --memory=4096", 4096},  {"compile m.pp -o d --memory 512MB", 512000000}, {"run m.pp --memory=2GiB", INT64_C(2) << 30},
                {"check m.pp --memory=3KiB", 3072},  {"check m.pp --memory=1TB", INT64_C(1000000000000)}, {"check m.pp --memory=7B", 7},
                {"check m.pp --memory=9223372036854775807", INT64_MAX}, {"check m.pp", 0}};
  for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
    result(accepted(memory[i].line) && options.compile.memory == memory[i].bytes, memory[i].line);
  result(accepted("compile m.pp -o d --target=cuda --arch=80,sm_90a --products-workspace=1MiB") && options.compile.target == PP_TARGET_CUDA &&
             strcmp(options.compile.arch, "80 90a") == 0 && options.compile.products_workspace == 1 << 20,
         "--target=cuda and what it takes");
  result(accepted("check m.pp --target=cuda --products-workspace=0") && options.compile.products_workspace == 0, "no workspace");
  result(accepted("compile m.pp -o d --target=cuda") && !options.compile.arch && options.compile.products_workspace == -1, "what it takes may be left out");
  result(accepted("dump --irdl") && options.irdl, "dump --irdl needs no model");
}

static void try_run(void) {
  result(accepted("run m.pp --steps=3 --save=w --json --timeout 1.5") && options.compile.steps == 3 && options.run_arguments.n == 4 &&
             strcmp(options.run_arguments.at[0], "--steps=3") == 0 && strcmp(options.run_arguments.at[3], "--json") == 0,
         "run hands options on");
  result(accepted("run m.pp --steps=0") && options.compile.steps == -1 && strcmp(options.run_arguments.at[0], "--steps=0") == 0,
         "no step to run leaves the file's count to the rates");
  result(accepted("run m.pp --generate=5 --prompt=a --init=w") && options.compile.generate && options.run_arguments.n == 3, "run --generate");
  result(accepted("run m.pp --trace=t --trace-steps=3:8") && options.run_arguments.n == 2, "run --trace");
  result(accepted("run m.pp --log-every=10") && strcmp(options.run_arguments.at[0], "--log-every=10") == 0, "run --log-every");
  result(accepted("run m.pp --target=cuda --graph --steps=2") && options.run_arguments.n == 2 && strcmp(options.run_arguments.at[0], "--graph") == 0, "run --graph");
  result(refused("run m.pp --graph"), "--graph needs --target=cuda");
  result(refused("run m.pp --target=cuda --generate=5 --graph"), "--graph means nothing with --generate");
  result(refused("run m.pp --log-every=0"), "--log-every=0");
  result(refused("run m.pp --generate=5 --log-every=2"), "--log-every means nothing with --generate");
  result(refused("run m.pp --trace=t --trace-steps=8:3"), "--trace-steps=8:3");
  result(refused("run m.pp --trace=t --trace-steps=0"), "--trace-steps=0");
  result(refused("run m.pp --generate=5 --trace=t"), "--trace means nothing with --generate");
  result(accepted("check m.pp --steps=3") && options.run_arguments.n == 0, "check hands nothing on");
  result(refused("run m.pp --generate=5 --save=w"), "--save means nothing with --generate");
  result(refused("run m.pp --prompt=a"), "--prompt needs --generate");
  result(refused("run m.pp --generate=0"), "nothing to generate");
}

static void try_refusals(void) {
  static const char *const lines[] = {
      "",
      "chek m.pp",
      "check",
      "check a.pp b.pp",
      "check m.pp --rank=1",
      "check m.pp --ranks",
      "check m.pp --ranks=",
      "check m.pp --ranks=0",
      "check m.pp --ranks=-1",
      "check m.pp --ranks=+1",
      "check m.pp --ranks=1x",
      "check m.pp --ranks=99999999999999999999",
      "check m.pp --seed=18446744073709551616",
      "check m.pp --threads=0",
      "check m.pp --dtype=bf16",
      "check m.pp --precision=f64",
      "check m.pp --color=blue",
      "check m.pp --target=gpu",
      "check --schedule=gpipe --ranks=2 --microbatches=2 --target=cuda",
      "check m.pp --target=cuda --threads=2",
      "compile m.pp -o out --arch=90",
      "compile m.pp -o out --target=cuda --arch=",
      "compile m.pp -o out --target=cuda --arch=hopper",
      "compile m.pp -o out --target=cuda --arch=90,",
      "compile m.pp -o out --target=cuda --arch=90aa",
      "check m.pp --products-workspace=4MiB",
      "check m.pp --no-epilogues",
      "check m.pp --target=cuda --products-workspace=much",
      "check m.pp --memory=0",
      "check m.pp --memory=-1",
      "check m.pp --memory=1.5GiB",
      "check m.pp --memory=GiB",
      "check m.pp --memory=4 GiB",
      "check m.pp --memory=4gib",
      "check m.pp --memory=4G",
      "check m.pp --memory=9223372036854775808",
      "check m.pp --memory=8388608TiB",
      "dump m.pp --memory=1",
      "check --schedule=gpipe --ranks=2 --microbatches=2 --memory=1",
      "check m.pp --no-fuse=1",
      "check m.pp -D width",
      "check m.pp -D 1=2",
      "check m.pp --data=text=",
      "check m.pp -o out",
      "check m.pp -x",
      "compile m.pp",
      "run m.pp --timeout=-1",
      "run m.pp --timeout=nan",
      "fmt a.pp b.pp",
      "fmt -i --check a.pp",
      "dump --irdl m.pp",
      "help nothing",
  };
  bool fine = true;
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    if (refused(lines[i])) continue;
    printf("  not refused: ppc %s\n", lines[i]);
    fine = false;
  }
  result(fine, "wrong lines are refused with status 2");
}

static void try_help(void) {
  static const char *const lines[] = {"--help", "help", "--version", "help run", "check --help", "compile --help", "run -h", "dump --help", "fmt --help m.pp --what"};
  bool fine = true;
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    if (accepted(lines[i]) && options.command == COMMAND_HELP) continue;
    printf("  no help: ppc %s\n", lines[i]);
    fine = false;
  }
  result(fine, "help is given");
}

int main(void) {
  arena = arena_create();
  try_values();
  try_run();
  try_refusals();
  try_help();
  arena_destroy(arena);
  return failures != 0;
}
