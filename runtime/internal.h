/* What the runtime's files share and emitted programs don't see: the handle of a rank, the board
 * (the control block in shared memory that all ranks of a job see) and one section per file.
 * Memory: everything here is made before step 1; the loop of steps allocates nothing. */
#ifndef PP_INTERNAL_H
#define PP_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "pp.h"
#include "device.h"
#include "transport.h"

/* Exit statuses of a program. */
enum { PP_EXIT_FINE = 0, PP_EXIT_INPUT = 1, PP_EXIT_USAGE = 2, PP_EXIT_BUG = 3, PP_EXIT_FAILED = 4 };

#define PP_TRY(call)                         \
  do {                                       \
    pp_status try_status = (call);           \
    if (try_status != PP_OK) return try_status; \
  } while (0)

#define PP_PRINTF(text, first) __attribute__((format(printf, text, first)))

enum {
  PP_CACHE_LINE = 64,
  PP_NAMES_BYTES = 16384, /* names of a rank's tasks and lines, for its peers' messages */
  PP_FAILURE_BYTES = 1024,
  PP_WAITING_BYTES = 256,
  PP_CHUNK_BYTES = 1 << 20, /* tensors go to rank 0 in pieces of this size */
  PP_TICK_MS = 50,
  PP_MAX_OPTIONS = 24
};

/* Up to a multiple. */
static inline uint64_t pp_round_up(uint64_t n, uint64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/* --- options.c -------------------------------------------------------------------------------- */

typedef struct {
  int64_t first, last;
} pp_steps;

typedef struct {
  int64_t steps;
  uint64_t seed;
  int threads;
  double timeout_s;       /* 0: no watching */
  double start_timeout_s; /* how long to wait for ranks that haven't started */
  const char *init, *save, *save_gradients, *trace;
  pp_steps trace_steps;   /* 0:0 when they were not given */
  const char *shm_dir, *job, *transport;
  int json, quiet, graph;
  int64_t log_every;      /* steps per line */
  const char **data; /* [n_data]: path given by --data, or null */
  int64_t generate;
  const char *prompt;
  double temperature;
  int64_t top_k;
} pp_options;

/* Returns -1 to go on, else the exit status (0 after --help). */
int pp_options_are_told(const pp_program *program); /* by this rank: what all of them would say */
int pp_options_parse(pp_options *out_options, const pp_program *program, int argc, char **argv);
void pp_options_destroy(pp_options *options);
/* A number for the value of each option that all ranks must share: some ranks may be told to save, or
 * to make more steps, but then none of them would come to an end. */
void pp_options_publish(const pp_options *options, const pp_program *program, uint64_t *out_digests);
const char *pp_options_differ(const uint64_t *a, const uint64_t *b); /* the first that does, or null */
/* Whole-string numbers without overflow: 1 on success. Leading blanks and signs are refused. */
int pp_parse_u64(const char *text, uint64_t *out_value);
int pp_parse_i64(const char *text, int64_t *out_value); /* not negative */
int pp_parse_f64(const char *text, double *out_value);  /* finite, not negative */

/* --- env.c ------------------------------------------------------------------------------------ */

enum { PP_JOB_BYTES = 96 };

typedef struct {
  int rank, n_ranks;
  char job[PP_JOB_BYTES]; /* a file name, the same in all ranks of a job and in no other job */
} pp_job;

typedef const char *pp_getenv_fn(const char *name, void *context);

/* Finds rank and job from a launcher's variables. On an error writes a text and returns 0. */
int pp_launch_find(pp_job *out_launch, const pp_program *program, const char *job, pp_getenv_fn *get,
                   void *context, char *out_text, size_t text_bytes);
/* Tasks per node as Slurm writes them, "2(x3),1": the sum and the nodes. 0 when malformed. */
int pp_parse_tasks_per_node(const char *text, int64_t *out_tasks, int64_t *out_nodes);

/* --- board.c: the control block ----------------------------------------------------------------- */

typedef enum {
  PP_STATE_ABSENT,
  PP_STATE_ATTACHED,
  PP_STATE_RUNNING,
  PP_STATE_FINISHED, /* leaves, with or without success; what happened stands in the failure record */
  PP_STATE_EXITED    /* somebody called exit() below the runtime */
} pp_state;

/* What a rank does, for the watchdog: only who computes may take as long as it likes. */
enum {
  PP_RUNS,
  PP_WAITS, /* for other ranks: it sleeps, or its device stands */
  PP_ISSUES /* calls libraries that enqueue work, each of which has to come back */
};

/* A rank's own lines. What peers write (the doorbell) is apart from what it writes at every action. */
typedef struct {
  _Alignas(PP_CACHE_LINE) _Atomic uint32_t doorbell; /* futex word: bumped by a peer after it set a flag */
  _Atomic uint32_t sleeping;
  _Atomic uint64_t wanted; /* chunks that rank 0 has asked of this rank */
  _Alignas(PP_CACHE_LINE) _Atomic uint64_t where; /* packed: task, line, microbatch; 0: not in an action */
  _Atomic uint64_t step;
  _Atomic uint64_t moves;      /* counts actions and waits that ended: stands still when the rank does */
  _Atomic uint64_t given;      /* chunks handed to rank 0 */
  _Atomic uint32_t waiting;    /* PP_RUNS, … */
  _Atomic uint32_t phase;      /* barriers entered */
  _Atomic uint32_t has_waiting_text;
  _Alignas(PP_CACHE_LINE) _Atomic uint64_t heartbeat;
  _Atomic uint32_t state;
  _Atomic int32_t pid;
  _Atomic uint32_t crash_signal;
  _Atomic uint64_t peak_rss_bytes;
  uint64_t device_digest, library_bytes; /* see pp_device.describe; read after the first barrier */
  uint64_t gpu;                /* which of the host's GPUs it is; read after the first barrier */
  uint64_t pinned_bytes;       /* pinned memory that its sends go through: cuda/host.c */
  uint32_t n_tasks, n_lines;
  uint64_t options[PP_MAX_OPTIONS]; /* see pp_options_publish; read after the first barrier */
  char waiting_text[PP_WAITING_BYTES];
  char names[PP_NAMES_BYTES]; /* n_tasks strings, then n_lines */
} pp_slot;

/* Set once per job: the first cause. claimed: 0 none, 1 being written, 2 complete. */
typedef struct {
  _Atomic uint32_t claimed;
  int32_t reporter, exit_status;
  uint64_t device, inode; /* the file that the reporter wrote to */
  char text[PP_FAILURE_BYTES];
} pp_failure;

typedef struct {
  _Alignas(PP_CACHE_LINE) _Atomic uint64_t ready; /* step whose bytes lie in the sender's buffer */
  _Atomic uint64_t done;                          /* step whose bytes the receiver has copied */
  _Atomic uint64_t sent_ns;                       /* in a traced step: when they were ready; stored before `ready` */
} pp_flags;

enum { PP_BOARD_FRESH, PP_BOARD_HEAD, PP_BOARD_SIZED };

typedef struct {
  _Atomic uint32_t stage; /* PP_BOARD_*: stored with release when what it says holds */
  uint32_t layout_version;
  uint64_t plan_hash, size_bytes, creator_start;
  int32_t creator_pid, n_ranks;
  uint32_t n_transfers;
  _Atomic uint32_t line_is_open; /* the log's live line, on a terminal */
  char parameters_hash[65], optimizer_hash[65]; /* from rank 0 to the rank of the log */
  _Atomic uint64_t trace_start_ns;
  pp_failure failure;
} pp_board;

/* Where things lie in the segment: board, slots, flags (the head), the chunk in which tensors go to
 * rank 0, then every rank's window, page aligned. */
typedef struct {
  size_t slots, flags, head_bytes, chunk, windows, total_bytes;
} pp_layout;

pp_layout pp_board_layout(const pp_program *program);
size_t pp_board_window(const pp_program *program, int rank);
/* Fills a zeroed head. */
void pp_board_init(void *base, const pp_program *program);
/* Null, or what differs. */
const char *pp_board_mismatch(const void *base, const pp_program *program);
/* Points the rank's handle into the segment and writes its names. */
void pp_board_attach(pp_rank *rank, void *base);

void pp_doorbell_ring(pp_slot *slot);
void pp_doorbell_ring_all(pp_rank *rank);

/* Sleeps until `done` says so; `done` is asked after every ring, and makes progress. */
typedef int pp_done_fn(pp_rank *rank, uint64_t argument);
pp_status pp_wait(pp_rank *rank, pp_done_fn *done, uint64_t argument);
pp_status pp_board_barrier(pp_rank *rank);
/* To rank 0 from another rank, at most PP_CHUNK_BYTES. Both sides call it in one order. */
pp_status pp_board_give(pp_rank *rank, const void *bytes, size_t size_bytes);
pp_status pp_board_take(pp_rank *rank, int from, void *out_bytes, size_t size_bytes);

uint64_t pp_now_ns(void);

/* --- watch.c: faults ---------------------------------------------------------------------------- */

/* Records the cause unless the job has one already, prints it once, wakes everybody. Returns PP_STOPPED. */
pp_status pp_fail(pp_rank *rank, int exit_status, const char *format, ...) PP_PRINTF(3, 4);
/* A line on stderr that ends nothing. */
void pp_warn(const pp_rank *rank, const char *format, ...) PP_PRINTF(2, 3);
/* Whether the job is to end: asked at every action. */
int pp_failing(pp_rank *rank);
int pp_exit_status(pp_rank *rank);
/* Says it again when this rank's stderr is another file than the reporter's. */
void pp_repeat_failure(pp_rank *rank);
/* Ends the process where no status can be handed back (inside a task, from the watchdog). */
_Noreturn void pp_leave(pp_rank *rank);
void pp_signals_install(void);
/* The signal that asked this process to end, or 0. */
int pp_signal_caught(void);
pp_status pp_watch_start(pp_rank *rank);
void pp_watch_stop(pp_rank *rank);
/* Start time of a process in clock ticks, which tells it from a later one of the same number; 0: it is gone. */
uint64_t pp_process_start(pid_t pid);
/* "stage_1_fwd (stage 1), microbatch 3, gpt2.pp:41" of any rank. */
void pp_describe_place(const pp_slot *slot, char *out_text, size_t text_bytes);
/* "waits until rank 1 has taken y (gpt2.pp:12), microbatch 3" */
void pp_describe_wait(const pp_program *program, uint32_t transfer, int is_send, char *out_text, size_t text_bytes);
/* From here to pp_limit_end, which has to come within so many seconds (0: at any time): else the watchdog ends the job with
 * "waited 60 s (OPTION) for …", and this process even if it is in a call that never comes back. */
void pp_limit(pp_rank *rank, double seconds, const char *option, const char *format, ...) PP_PRINTF(4, 5);
void pp_limit_end(pp_rank *rank);

/* --- memory.c ----------------------------------------------------------------------------------- */

/* The device's memory, and what is looked up in it at every action. */
pp_status pp_memory_create(pp_rank *rank);
void pp_memory_destroy(pp_rank *rank);
/* Why the step that has ended, of which control, losses and norms are seen, changes nothing. */
void pp_seen_skip(pp_rank *rank);
void *pp_address(const pp_rank *rank, uint64_t offset);           /* bit 63: in the window */
void *pp_address_in(const pp_rank *rank, int space, uint64_t offset);

/* --- data.c ------------------------------------------------------------------------------------- */

typedef struct {
  int fd;
  char *path;
  uint64_t start_bytes; /* where the first element lies */
  uint64_t n_elements;
  uint64_t n_windows;   /* samples of an epoch when order is not random */
  uint64_t name_hash;
} pp_source;

pp_status pp_data_open(pp_rank *rank);
void pp_data_close(pp_rank *rank);
/* Element number where sample k begins. */
uint64_t pp_data_place(const pp_source *source, const pp_data *data, uint64_t seed, uint64_t k);

/* --- random.c ----------------------------------------------------------------------------------- */

void pp_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
uint64_t pp_hash_name(const char *name); /* FNV-1a, 64 bits */
void pp_random_fill_uniform(uint64_t seed, uint64_t step, uint32_t microbatch, uint64_t key, float *dst, int64_t n);
/* Number e of a normal stream is a function of (seed, stream, e). */
void pp_random_fill_normal(uint64_t seed, uint64_t stream, uint64_t first, double *dst, int64_t n);
void pp_random_fill_unit(uint64_t seed, uint64_t stream, uint64_t first, double *dst, int64_t n);
uint64_t pp_random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n);
/* A permutation of [0, n) for each key. */
uint64_t pp_permute(uint64_t key, uint64_t n, uint64_t index);

/* --- tensors.c ------------------------------------------------------------------------------- */

typedef struct pp_tensors pp_tensors; /* a safetensors file whose header was checked */

typedef struct {
  const char *name;
  char dtype[8];
  int n_dims;
  int64_t dims[PP_MAX_RANK];
  uint64_t begin, end; /* in the file */
} pp_tensor_entry;

/* 1 on success; else a text that names the file. */
int pp_tensors_open(const char *path, pp_tensors **out_tensors, char *out_text, size_t text_bytes);
void pp_tensors_close(pp_tensors *tensors);
size_t pp_tensors_count(const pp_tensors *tensors);
const pp_tensor_entry *pp_tensors_at(const pp_tensors *tensors, size_t i); /* in the order of names */
const pp_tensor_entry *pp_tensors_find(const pp_tensors *tensors, const char *name);
int pp_tensors_read(const pp_tensors *tensors, uint64_t at, void *out_bytes, size_t size_bytes);

/* --- file.c ------------------------------------------------------------------------------------- */

typedef struct {
  const char *path;
  char *temporary; /* null: not open */
  int fd;
} pp_file;

char *pp_file_directory(const char *path); /* the caller frees it; null: out of memory */
pp_status pp_file_check(pp_rank *rank, const char *option, const char *path); /* before step 1: can it be made? */
pp_status pp_file_open(pp_rank *rank, pp_file *file, const char *path);
pp_status pp_file_write(pp_rank *rank, const pp_file *file, const void *bytes, size_t size_bytes);
pp_status pp_file_publish(pp_rank *rank, pp_file *file);
void pp_file_destroy(pp_rank *rank, pp_file *file); /* of a zeroed or half-written one too */

/* --- checkpoint.c ------------------------------------------------------------------------------- */

/* Values from the file, or from the seed. */
pp_status pp_parameters_start(pp_rank *rank);
/* Collective: rank 0 writes the file. */
pp_status pp_parameters_save(pp_rank *rank, const char *path);
pp_status pp_gradients_save(pp_rank *rank, const char *path);
pp_status pp_save_check(pp_rank *rank); /* before step 1: can the files be made? */
/* Keeps the summed gradients of this rank as they are before the update. */
pp_status pp_gradients_keep(pp_rank *rank);
/* Collective: rank 0 puts them on the board, 64 hexadecimal digits each. */
pp_status pp_hashes(pp_rank *rank);

/* --- hash.c ------------------------------------------------------------------------------------- */

typedef struct pp_sha256 pp_sha256;
pp_sha256 *pp_sha256_create(void); /* null: no memory */
void pp_sha256_add(pp_sha256 *hash, const void *bytes, size_t size_bytes);
void pp_sha256_finish(pp_sha256 *hash, char out_text[65]); /* and destroys it */

/* --- log.c -------------------------------------------------------------------------------------- */

typedef struct {
  int live, json, quiet;
  int closed, failed; /* nobody reads it any more; for a reason that is a fault */
  uint64_t start_ns, shown_ns;
  char *line; /* under construction; large enough for a step's text */
  size_t line_bytes, used;
} pp_log;

pp_status pp_log_create(pp_rank *rank);
void pp_log_destroy(pp_rank *rank);
void pp_log_step(pp_rank *rank, int64_t step);
void pp_log_close_line(pp_rank *rank);
void pp_log_done(pp_rank *rank);
/* Shortest text that reads back to the same bits, as f32 when is_f32. JSON's null when not finite. */
enum { PP_REAL_BYTES = 40 };
void pp_format_real(double value, int is_f32, char out_text[PP_REAL_BYTES]);

/* --- trace.c ------------------------------------------------------------------------------------ */

typedef struct pp_trace pp_trace;

/* With --trace: reserves everything; rank 0 checks that the file can be written. */
pp_status pp_trace_create(pp_rank *rank);
void pp_trace_destroy(pp_rank *rank);
void pp_trace_step(pp_rank *rank); /* sets rank->times for the step that begins, null unless it is traced */
/* Clock readings, only while rank->times is set; end 0: at its start. */
void pp_trace_mark(pp_rank *rank, int end);
void pp_trace_action(pp_rank *rank, const pp_action *action, int end);
void pp_trace_op(pp_rank *rank, const pp_op *op, int end);
void pp_trace_copy(pp_rank *rank, uint32_t transfer, int end);
/* Collective, at the end of a traced step whose times are known only then: receivers hear when was sent. */
pp_status pp_trace_exchange(pp_rank *rank);
/* Collective: rank 0 writes the file. */
pp_status pp_trace_write(pp_rank *rank);

/* --- generate.c --------------------------------------------------------------------------------- */

pp_status pp_generate(pp_rank *rank);
/* Index drawn from logits; uniform in [0, 1). temperature 0: the first largest. scratch: n values. */
int64_t pp_sample(const double *logits, int64_t n, double temperature, int64_t top_k, double uniform, double *scratch);

/* --- rank.c ------------------------------------------------------------------------------------- */

struct pp_rank {
  const pp_program *program;
  const pp_options *options;
  _Atomic(const pp_transport *) transport; /* pp_transport_auto becomes another where it starts */
  pp_job launch;

  pp_board *board;
  pp_slot *slots; /* [n_ranks] */
  pp_slot *slot;  /* own */
  pp_flags *flags;
  unsigned char *chunk;
  unsigned char *segment; /* all windows lie in it */
  size_t segment_bytes;
  size_t *windows;        /* [n_ranks] where each rank's window begins in it */
  int owns_segment;       /* 1: unmapped at the end */
  int made_segment;       /* rank 0, until the name is unlinked */
  char *segment_path;
  pp_board *early_board;  /* a mapping of the head alone: start-up errors stand in it */
  size_t early_board_bytes;
  pp_failure *failure;    /* the job's; before there is a board, early_failure */
  pp_failure early_failure;
  int in_threads;         /* ranks are threads of one process */

  unsigned char *arena, *window; /* addresses of the device */
  struct pp_cuda *cuda;   /* cuda/rank.h; null on the CPU */
  char about[256];        /* the device and its libraries, for the log; empty: nothing to tell */
  struct pp_transfers *transfers; /* cuda/transfers.c */
  struct pp_nccl *nccl;   /* cuda/nccl.c */
  struct pp_host *host;   /* cuda/host.c */
  const pp_op *issued;    /* the operation that is being issued */
  pp_seen seen;
  void **at;              /* [n_offsets] */

  uint64_t step;          /* being made, from 1 */
  uint64_t samples;       /* consumed before this step */
  int64_t steps_done;
  uint64_t skips_told;    /* steps that changed nothing, of those the log has told */
  uint32_t *posted;       /* transfers whose receive is posted and not yet pulled */
  uint32_t n_posted;
  uint64_t *arrived;      /* [n_transfers] step pulled last */
  int spins;
  uint64_t late_state;    /* of the transports that move late */
  uint32_t channels;      /* of the strict one */
  uint32_t phase;
  uint64_t chunks_given, *chunks_taken; /* the latter on rank 0, per rank */
  uint32_t waits_for;     /* transfer + 1 while it waits */
  int waits_for_send;

  uint32_t check_point, check_life; /* of a checking build, or of names for tools */
  void (*point)(pp_rank *rank);     /* called at the points of a step (pp_life); null: nothing to do */
  pp_source *sources;     /* [n_data] */
  pp_tensors *init;
  _Atomic(char *) temporary; /* path of a file being written, removed when the process has to end */
  unsigned char *kept;    /* gradients kept for --save-gradients */
  int keeps;              /* this step keeps them */
  pp_trace *trace;        /* null without --trace */
  uint64_t *times;        /* of this step, null unless it is traced */
  pp_log log;
  double last_loss;

  _Atomic uint32_t moving;     /* transfer + 1 whose call runs; for PP_ISSUES */
  _Atomic uint64_t limit_ns;   /* 0: none runs */
  double limit_s;
  char limit_text[256];        /* "(OPTION) for WHAT", written before limit_ns */
  pthread_t watcher;
  int watching;
  int wake_fd;            /* ends the watcher's sleep */
  atomic_int watch_quit;
};

/* --- check.c: only with -DPP_CHECK ------------------------------------------------------------------ */

#ifdef PP_CHECK
void pp_check_start(pp_rank *rank);
void pp_check_step(pp_rank *rank);
void pp_check_point(pp_rank *rank); /* before each transfer operation and each task; once more at the end of a step */
void pp_check_end(pp_rank *rank);
#else
static inline void pp_check_start(pp_rank *rank) { (void)rank; }
static inline void pp_check_step(pp_rank *rank) { rank->check_point = rank->check_life = 0; }
static inline void pp_check_point(pp_rank *rank) {
  if (rank->point) rank->point(rank);
}
static inline void pp_check_end(pp_rank *rank) { (void)rank; }
#endif

/* The next random number of a transport that moves late: xorshift64. */
static inline uint64_t pp_late_random(pp_rank *rank) {
  uint64_t x = rank->late_state;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return rank->late_state = x;
}

pp_status pp_run_actions(pp_rank *rank);
/* Where the rank is, for its peers' messages. */
void pp_note_place(pp_rank *rank, const pp_action *action);
/* Everything between options and exit; transport already chosen. */
int pp_rank_run(const pp_program *program, const pp_options *options, const pp_transport *transport,
                const pp_job *launch, void *segment);

#endif
