. "$(dirname "$0")/lib.sh"
must $ppc run $models/gpt2.pp "${tiny[@]}" --ranks=2 --steps=3 --json
cp out expected.json

# Without ppc: only a compiler and make are found.
must $ppc compile $models/gpt2.pp "${tiny[@]}" --ranks=2 -o made
must env -i HOME="$HOME" PATH=/usr/bin:/bin make -s -C made -j2 WARN=-Werror
cp -r made moved && rm -rf made && cd moved || exit 1
command -v ppc >/dev/null && [ "$(env -i PATH=/usr/bin:/bin sh -c 'command -v ppc')" ] && fail "there is a ppc in /usr/bin"

alike() { # NAME: the run of that name was as that of ppc run, one line for each step
  same $1.json ../expected.json
  [ $(wc -l <$1.json) = 4 ] || fail "$1: $(wc -l <$1.json) lines, expected 4"
  diff <(sed 's/,"tokens_per_s.*//;/done/d' $1.json) <(sed 's/,"tokens_per_s.*//;/done/d' ../expected.json) || fail "$1: other losses"
}
by_hand() { # NAME, then words with VARIABLE=R for rank R: all ranks, started by a shell loop
  local name=$1 status=0 pids=() r
  shift
  for r in 0 1; do
    env "${@//=R/=$r}" ./rank_$r --steps=3 --json --start-timeout=20 >$name.$r 2>$name.err.$r &
    pids+=($!)
  done
  for r in 0 1; do wait ${pids[r]} || status=$?; done
  cat $name.0 $name.1 >$name.json
  cat $name.err.0 $name.err.1 >err
  return $status
}

./launch.sh --steps=3 --json >launch.json 2>err || fail launch.sh
alike launch
(cd / && "$OLDPWD/launch.sh" --steps=3 --json) >elsewhere.json 2>err || fail "launch.sh from another folder"
alike elsewhere
by_hand torchrun RANK=R WORLD_SIZE=2 LOCAL_RANK=R MASTER_ADDR=localhost MASTER_PORT=$$.1 || fail "torchrun's variables"
alike torchrun
by_hand slurm SLURM_PROCID=R SLURM_NTASKS=2 SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=2 || fail "Slurm's variables"
alike slurm
by_hand openmpi OMPI_COMM_WORLD_RANK=R OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=n$$ || fail "Open MPI's variables"
alike openmpi
# What a batch job left behind is of another size: it doesn't count.
by_hand inherited RANK=R WORLD_SIZE=2 MASTER_PORT=$$.2 SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_ID=0 || fail "inherited Slurm variables"
alike inherited
if command -v mpiexec >/dev/null; then
  mpiexec -n 1 ./rank_0 --steps=3 --json : -n 1 ./rank_1 --steps=3 --json >mpiexec.json 2>err </dev/null || fail mpiexec
  alike mpiexec
  sed 's/$/ --steps=3 --json/' mpiexec.conf >options.conf
  mpiexec -configfile options.conf >configfile.json 2>err </dev/null || fail "mpiexec -configfile"
  alike configfile
  mpiexec -n 1 ./rank_0 --steps=2 --quiet : -n 1 ./rank_1 --steps=2 --json --quiet >out 2>err </dev/null && fail "ranks with different options"
  grep -q 'ranks 0 and 1 were started with different --json' err || fail "the option that differs is not named"
else
  echo "no mpiexec here: not tried"
fi

# What is local decides nothing: one rank's output is closed, the other's a file.
PPC_RANK=0 PPC_RANKS=2 PPC_JOB=local-$$ ./rank_0 --steps=3 --save=local.st >&- 2>&- &
PPC_RANK=1 PPC_RANKS=2 PPC_JOB=local-$$ ./rank_1 --steps=3 --save=local.st --quiet >local.txt 2>err || fail "rank 1 of 2 with a file of its own"
wait $! || fail "rank 0 of 2 with its output closed"
[ ! -s local.txt ] && [ -s local.st ] || fail "no file was saved"
mkdir parts
for r in 0 1; do PPC_RANK=$r PPC_RANKS=2 PPC_JOB=parts-$$ ./rank_$r --steps=3 >parts/$r 2>&1 & done
wait
[ "$(cat parts/* | grep -c '^step')" = 3 ] && [ "$(cat parts/* | wc -l)" = 3 ] || fail "not one line for each step, once for the job"

# Refused before step 1, each by a line that says why.
refused 1 'two launchers disagree: RANK=1 \(torchrun\) and SLURM_PROCID=0 \(Slurm\)' \
  env RANK=1 WORLD_SIZE=2 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 ./rank_1 --steps=1
refused 1 'this program is rank 1 of 2 of gpt2.pp, but RANK=0' env RANK=0 WORLD_SIZE=2 ./rank_1 --steps=1
refused 1 'no launcher says so.*RANK=\(unset\).*SLURM_PROCID' env -u RANK ./rank_1 --steps=1
refused 1 'PPC_RANK=0 and PPC_RANKS=4' env PPC_RANK=0 PPC_RANKS=4 ./rank_0 --steps=1
refused 1 'SLURM_STEP_TASKS_PER_NODE=1\(x2\): not all 2 ranks are on one host' env SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 'SLURM_STEP_TASKS_PER_NODE=1(x2)' ./rank_0
refused 1 'not numbers' env RANK=0x0 WORLD_SIZE=2 ./rank_0
refused 4 'of 2 ranks these did not start: 1' env RANK=0 WORLD_SIZE=2 MASTER_PORT=$$.4 ./rank_0 --steps=1 --start-timeout=1
refused 2 'unknown option' ./rank_0 --stpes=1
refused 2 'unknown option' ./rank_1 --stpes=1
# The same options for all ranks: told once.
refused 2 'unknown option' ./launch.sh --stpes=1
[ $(wc -l <err) = 1 ] || fail "each rank tells of an option: $(cat err)"
refused 2 'no transport none' ./launch.sh --transport=none
[ $(wc -l <err) = 1 ] || fail "each rank tells of the transport: $(cat err)"
must ./launch.sh --help
[ $(grep -c ^Options: out) = 1 ] || fail "each rank prints the help"
refused 2 'graph: means nothing to a program for CPUs' ./rank_0 --graph
cd ..

# ppc run overrides whatever is inherited.
must env SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_ID=0 $ppc run $models/gpt2.pp "${tiny[@]}" --ranks=2 --steps=3 --json
same out expected.json
must env SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 RANK=0 WORLD_SIZE=1 \
  $ppc run $models/gpt2.pp "${tiny[@]}" --ranks=2 --steps=3 --json
same out expected.json

# Plain lines: one for each step, once for the job, whichever rank's output it is.
must $ppc run $models/gpt2.pp "${tiny[@]}" --ranks=2 --steps=3
[ "$(grep -c '^step' out)" = 3 ] && [ $(wc -l <out) = 3 ] || fail "not one line for each step"
