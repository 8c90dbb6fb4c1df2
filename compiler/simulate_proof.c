/* In: a job and an order of its actions. Verified: that order, with each transfer put right behind its maker, makes
 * everything wait forwards only. Each transfer stands in it once, and what must come before something else does:
 * an action before the next of its rank, the maker before its transfer, the transfer before the overlap block (or
 * action) that uses it, and each transfer before the next one of either of its ranks. Then the first in the order
 * that is not done can always go on, in any transport that keeps each rank's order. */
#include "compiler/base/vec.h"
#include "compiler/simulate.h"

typedef struct {
  int maker, user;
} Move;
typedef VEC(Move) Moves;

/* In the total order: by the place of the maker, those of one maker as its users come. */
static Moves order_moves(Arena *arena, const SimulateJob *job, const Simulation *s) {
  Moves moves = {0};
  int *first = arena_alloc_array(arena, (size_t)job->n + 1, sizeof *first); /* by place of the maker: how many */
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < job->n; i++)
      for (int k = job->first_need[i]; k < job->first_need[i + 1]; k++) {
        int maker = job->needs[k].maker;
        if (job->actions[maker].rank == job->actions[i].rank || !job->routes[job->needs[k].route].moves) continue;
        if (pass == 0) first[s->order[maker]]++;
        else moves.at[first[s->order[maker]]++] = (Move){maker, i};
      }
    if (pass == 1) break;
    for (int place = 0; place <= job->n; place++) {
      int n = first[place];
      first[place] = moves.n;
      moves.n += n;
    }
    moves.at = arena_alloc_array(arena, (size_t)moves.n + 1, sizeof *moves.at);
  }
  return moves;
}

static int block_begin(const SimulateJob *job, int action) {
  while (action > 0 && simulate_share_block(&job->actions[action], &job->actions[action - 1])) action--;
  return action;
}

static bool orders_actions(Arena *arena, const SimulateJob *job, const int *order) {
  bool *seen = arena_alloc_array(arena, (size_t)job->n + 1, sizeof *seen);
  for (int i = 0; i < job->n; i++) {
    if (order[i] < 0 || order[i] >= job->n || seen[order[i]]) return false;
    seen[order[i]] = true;
    bool follows = i > 0 && job->actions[i - 1].rank == job->actions[i].rank;
    if (follows && order[i - 1] > order[i]) return false;
  }
  return true;
}

/* Needs within a rank too, but for those within a block: its members start together. */
static bool orders_needs(const SimulateJob *job, const int *order) {
  for (int i = 0; i < job->n; i++)
    for (int k = job->first_need[i]; k < job->first_need[i + 1]; k++)
      if (order[job->needs[k].maker] >= order[block_begin(job, i)]) return false;
  return true;
}

static bool orders_moves(Arena *arena, const SimulateJob *job, const int *order, const Moves *moves) {
  int *last = arena_alloc_array(arena, (size_t)job->n_ranks, sizeof *last); /* place of each rank's last transfer + 1 */
  for (int i = 0; i < moves->n; i++) {
    const Move *move = &moves->at[i];
    int place = order[move->maker], from = job->actions[move->maker].rank, to = job->actions[move->user].rank;
    if (last[from] > place + 1 || last[to] > place + 1) return false;
    last[from] = last[to] = place + 1;
  }
  return true;
}

int simulate_prove(Arena *arena, const SimulateJob *job, const Simulation *s) {
  if (!orders_actions(arena, job, s->order) || !orders_needs(job, s->order)) return -1;
  Moves moves = order_moves(arena, job, s);
  return orders_moves(arena, job, s->order, &moves) ? moves.n : -1;
}
