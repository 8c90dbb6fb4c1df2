/* What actions and transfers cost, as the command line states it. */
#ifndef PPC_COSTS_H
#define PPC_COSTS_H

#include <stdbool.h>

#include "compiler/base/arena.h"
#include "runtime/abi.h"

typedef enum {
  COST_FORWARD,  /* F */
  COST_INPUT,    /* I: the input half of a backward */
  COST_WEIGHT,   /* W: its weight half */
  COST_BACKWARD, /* B: a whole backward; I + W when it is not stated */
  COST_TRANSFER, /* a hop between two ranks, by the stage that sends */
  COST_PAIR,     /* an overlap block of a forward and a backward, by the stage of the forward; else the sum */
  COST_KEY_COUNT
} CostKey;

typedef struct {
  int n;            /* 0: not stated; 1: of every stage; else of each stage */
  const double *at;
} CostList;

typedef struct {
  CostList of[COST_KEY_COUNT];
} StatedCosts;

/* "F=1,I=[1,2],transfer=0.05": adds to `costs`. Null, or what is wrong with the text. */
const char *costs_parse(Arena *arena, const char *text, StatedCosts *costs);
/* A list must have a value for each stage. Null, or what is wrong. */
const char *costs_check_stages(Arena *arena, const StatedCosts *costs, int n_stages);
/* Of a task of the loop; F, I and W are 1 when they are not stated. Tasks after the loop cost nothing. */
double costs_of_task(const StatedCosts *costs, pp_task_kind kind, int stage);
double costs_of_transfer(const StatedCosts *costs, int stage); /* 0 when it is not stated */
bool costs_of_pair(const StatedCosts *costs, int stage, double *out_cost); /* false when it is not stated */
const char *costs_key_name(CostKey key); /* "F" */

#endif
