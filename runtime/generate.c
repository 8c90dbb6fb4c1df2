#include "internal.h"
pp_status pp_generate(pp_rank *rank) { return pp_fail(rank, PP_EXIT_BUG, "not yet"); }
