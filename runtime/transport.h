/* How bytes get from one rank to another. The pull protocol: a sender's bytes stay in its window
 * until the receiver has taken them, so that a send never blocks and never copies; a receive moves
 * only bytes that it was posted for. Every wait pulls whatever is posted and ready, so that a rank
 * that waits for one transfer never holds up another. All transports pass runtime/transport_test.c. */
#ifndef PP_TRANSPORT_H
#define PP_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#include "pp.h"

/* PP_STOPPED: the job ends; its one cause is recorded and printed where it was found. */
typedef enum { PP_OK, PP_STOPPED } pp_status;

typedef struct {
  const char *name;
  int (*fits)(int n_ranks); /* tried in the order of the device's list when none is named; null: only by name */
  pp_status (*connect)(pp_rank *rank, void *segment); /* finds the peers; the rank's windows are mapped after it */
  pp_status (*start)(pp_rank *rank);                  /* when memory is mapped and the watchdog runs; null: nothing to do */
  void (*stop)(pp_rank *rank);                        /* before memory goes, of a half-made start too; null: nothing to do */
  void (*disconnect)(pp_rank *rank);                  /* takes a half-made connection */
  void (*abort)(pp_rank *rank);     /* the job fails: nothing may wait for a peer any more; from any thread; may be null */
  pp_status (*look)(pp_rank *rank); /* while the host waits for its device: are transfers well, where is it; may be null */
  void (*repeat)(pp_rank *rank);    /* this step has been issued as a whole, with the transfers of the one before the last; may be null */
  void (*post_send)(pp_rank *rank, uint32_t transfer);
  void (*post_receive)(pp_rank *rank, uint32_t transfer);
  pp_status (*await_send)(pp_rank *rank, uint32_t transfer);
  pp_status (*await_receive)(pp_rank *rank, uint32_t transfer);
  void (*progress)(pp_rank *rank); /* pulls what is posted and ready; called at every action */
  pp_status (*barrier)(pp_rank *rank);
  pp_status (*give)(pp_rank *rank, const void *bytes, size_t size_bytes); /* to rank 0 */
  pp_status (*take)(pp_rank *rank, int from, void *out_bytes, size_t size_bytes);
} pp_transport;

extern const pp_transport pp_transport_self;    /* one rank */
extern const pp_transport pp_transport_shm;     /* processes of one host */
extern const pp_transport pp_transport_late;    /* shm that copies as late as it may: for tests */
extern const pp_transport pp_transport_strict;  /* shm by rendezvous, over few channels: for tests */
extern const pp_transport pp_transport_threads; /* threads of one process: for checkers */
extern const pp_transport pp_transport_strict_threads;
extern const pp_transport pp_transport_nccl;    /* between GPUs: cuda/nccl.c */
extern const pp_transport pp_transport_host;    /* between ranks on any GPUs of one host: cuda/host.c */
extern const pp_transport pp_transport_auto;    /* one of these two */
extern const pp_transport *const pp_transports_cpu[]; /* ends with null */

/* Parts of shm that other transports over a shared board use. */
void pp_shm_post_send(pp_rank *rank, uint32_t transfer);
void pp_shm_post_receive(pp_rank *rank, uint32_t transfer);
pp_status pp_shm_await_send(pp_rank *rank, uint32_t transfer);
pp_status pp_shm_await_receive(pp_rank *rank, uint32_t transfer);
void pp_shm_pull(pp_rank *rank, uint32_t transfer); /* a posted receive whose send is ready */
void pp_shm_progress(pp_rank *rank);
pp_status pp_shm_connect(pp_rank *rank, void *segment);
pp_status pp_threads_connect(pp_rank *rank, void *segment); /* ranks are threads of one process */
void pp_shm_disconnect(pp_rank *rank);
/* Collective, when connected: more memory that all ranks share, reserved and zeroed, by rank 0. The caller unmaps it. */
pp_status pp_shm_share(pp_rank *rank, size_t size_bytes, void **out_base);

#endif
