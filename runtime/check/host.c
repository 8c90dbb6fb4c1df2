/* libcudart: host functions. A function runs on a thread of its own while the program goes on, one at a time over all
 * streams, as CUDA may do it; and it may not call CUDA. What it waits for nobody here can see: while it runs, the rank is
 * neither coming forward nor hung. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "core.h"

enum { NAP_NS = 1000000 };

typedef struct HostCall {
  cudaHostFn_t function;
  void *argument;
  bool is_given; /* to the thread */
} HostCall;

typedef enum { IDLE, GIVEN, ENDED } State;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static State state;
static HostCall current;
static uint32_t current_op;
static bool has_thread;
static _Thread_local bool is_host_function;

/* ---- its thread ---- */

static void *run(void *unused) {
  (void)unused;
  is_host_function = true;
  pthread_mutex_lock(&mutex);
  for (;;) {
    while (state != GIVEN) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    current.function(current.argument);
    pthread_mutex_lock(&mutex);
    state = ENDED;
    pthread_cond_broadcast(&changed);
  }
  return NULL;
}

/* Signals are the program's own threads'. */
static void create_thread(void) {
  pthread_t thread;
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  if (pthread_create(&thread, NULL, run, NULL) != 0) check_fatal("internal", "no thread for host functions");
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_detach(thread);
  has_thread = true;
}

void check_host_function_calls(void) {
  if (is_host_function) check_report("misuse", "%s calls CUDA, which host functions may not", check_label_text(current_op));
}

/* ---- the op ---- */

static State state_now(void) {
  pthread_mutex_lock(&mutex);
  State now = state;
  pthread_mutex_unlock(&mutex);
  return now;
}

static void set_state(State next) {
  pthread_mutex_lock(&mutex);
  state = next;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
}

static bool poll_call(Op *op) {
  HostCall *call = op->payload;
  State now = state_now();
  if (call->is_given) {
    if (now == ENDED) set_state(IDLE);
    return now == ENDED;
  }
  if (now != IDLE) return false; /* another stream's */
  if (!has_thread) create_thread();
  call->is_given = true;
  current = *call;
  current_op = op->id;
  set_state(GIVEN);
  return false;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument) {
  CHECK_CALL();
  if (!function) return check_misuse(cudaErrorInvalidValue, "cudaLaunchHostFunc in '%s': no function", check_action());
  Op *op = check_op_create(stream, sizeof(HostCall), "cudaLaunchHostFunc");
  *(HostCall *)op->payload = (HostCall){.function = function, .argument = argument};
  op->poll = poll_call;
  check_op_issue(op);
  check_step_some();
  return cudaSuccess;
}

/* ---- waiting for it ---- */

bool check_host_function_nap(void) {
  struct timespec end;
  int depth = check_lock_give();
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_nsec += NAP_NS;
  if (end.tv_nsec >= 1000000000) end.tv_sec++, end.tv_nsec -= 1000000000;
  pthread_mutex_lock(&mutex);
  bool runs = state != IDLE;
  if (state == GIVEN) pthread_cond_timedwait(&changed, &mutex, &end);
  pthread_mutex_unlock(&mutex);
  check_lock_take(depth);
  return runs;
}
