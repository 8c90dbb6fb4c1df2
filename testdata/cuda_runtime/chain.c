/* A rank of the chain of runtime/chain.h on a GPU; PPC_RANK and PPC_RANKS say which. */
#include "runtime/chain.c"

int main(int argc, char **argv) {
  chain_options options = chain_options_read();
  return pp_main(chain_create(&options, (int)variable("PPC_RANK", 0), (int)variable("PPC_RANKS", 1)), argc, argv);
}
