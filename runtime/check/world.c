/* libnccl: the job. Ranks are processes that share one mapped file.
 *   PPC_CHECK_WORLD         the file; default: one in shared memory named after PPC_JOB
 *   PPC_CHECK_RANKS, _RANK  default: PPC_RANKS, PPC_RANK
 *   PPC_CHECK_HANG=wait     no report when no rank can go on: for programs that have time-outs of their own
 *   PPC_CHECK_LIMIT         seconds without any move of any rank after which a rank that waits reports all of them (300)
 * A rank is stalled at progress P after it looked at everything since P; all stalled at one P is a hang, found without
 * time-outs. A rank that only asks on and on might stop asking: it must have looked ASKS more times after all were
 * stalled. A rank in neither (it computes, or waits for something of its own) is neither progress nor a hang: if the
 * others can't go on for PPC_CHECK_LIMIT, that is reported. Where a rank has ended, or given up a communicator, the rest
 * get GRACE_S to notice. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "world.h"

enum { ASKS = 20, GRACE_S = 3, NAP_NS = 1000000, REPORT_NAPS = 5000 };
enum { ABSENT, ALIVE, FINISHED, FAILED };

typedef struct Member {
  _Atomic int state;
  _Atomic uint32_t stalled_at; /* progress + 1; 0: it runs */
  _Atomic uint32_t looks;      /* since it is stalled, if it only asks */
  _Atomic bool asks;
  _Atomic uint32_t peers;      /* world ranks its running transfers wait for */
  _Atomic uint64_t moved_at;   /* ns */
  char program[64], waiting[TEXT], pending[4 * TEXT];
} Member;

typedef struct World {
  _Atomic uint32_t progress, n_sleepers;
  _Atomic bool lock, is_reported, has_reported; /* a hang: by whom is settled; all of it is told */
  _Atomic int n_comms, n_boxes;
  Member members[MAX_RANKS];
  SharedComm comms[MAX_COMMS];
  Box boxes[MAX_BOXES];
} World;

static World *world;
static int n_world, world_file;
static bool reports_hangs;
static uint64_t limit_ns;

static Member *me(void) { return &world->members[check_rank()]; }

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- progress ---- */

static uint32_t read_progress(void) { return world->progress; }

void world_note_progress(void) {
  world->progress++;
  me()->moved_at = now_ns();
  if (world->n_sleepers) syscall(SYS_futex, &world->progress, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void world_wait_for(uint32_t peers) { me()->peers = peers; }

static void resume(void) {
  Member *m = me();
  m->stalled_at = 0;
  m->asks = false;
  m->moved_at = now_ns();
}

static void nap(uint32_t seen) {
  struct timespec length = {0, NAP_NS};
  int depth = check_lock_give();
  world->n_sleepers++;
  syscall(SYS_futex, &world->progress, FUTEX_WAIT, seen, &length, NULL, 0);
  world->n_sleepers--;
  check_lock_take(depth);
}

static void finish(void) {
  me()->state = check_has_reports() ? FAILED : FINISHED;
  world_note_progress();
}

/* Every rank holds a lock on its byte of the file until its process is gone. */
bool world_has_died(int rank) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
  if (rank == check_rank() || world->members[rank].state != ALIVE) return false;
  /* It may have finished since: it says so before its lock goes. */
  return fcntl(world_file, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK && world->members[rank].state == ALIVE;
}

/* ---- hangs ---- */

static bool print_cycle(int start) {
  int path[MAX_RANKS + 1], n = 0, at = start;
  bool seen[MAX_RANKS] = {false};
  while (!seen[at]) {
    seen[at] = true;
    path[n++] = at;
    uint32_t peers = world->members[at].peers;
    if (!peers || world->members[at].state != ALIVE) return false;
    at = __builtin_ctz(peers);
  }
  int first = 0;
  while (path[first] != at) first++;
  char text[1024];
  size_t used = 0;
  for (int i = first; i < n; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s -> ", world->members[path[i]].program);
  check_report("hang", "wait cycle: %s%s", text, world->members[at].program);
  return true;
}

static void report_member(int r) {
  const Member *m = &world->members[r];
  const char *pending = m->pending[0] ? m->pending : "nothing queued";
  if (m->state == ABSENT) check_report("hang", "rank %d never came", r);
  else if (m->state != ALIVE) check_report("hang", "%s has ended", m->program);
  else if (world_has_died(r)) check_report("hang", "%s has died", m->program);
  else if (m->stalled_at) check_report("hang", "%s waits in %s; its streams: %s", m->program, m->waiting, pending);
  else check_report("hang", "%s is in no call that waits; last, in %s; its streams: %s", m->program, m->waiting, pending);
}

static void report_hang(void) {
  struct timespec moment = {0, NAP_NS};
  bool is_first = !atomic_exchange(&world->is_reported, true);
  for (int r = 0; is_first && r < n_world; r++) report_member(r);
  for (int r = 0; is_first && r < n_world; r++)
    if (print_cycle(r)) break;
  if (is_first) world->has_reported = true;
  for (int i = 0; !world->has_reported && i < REPORT_NAPS; i++) nanosleep(&moment, NULL); /* who leaves is one that died */
  _exit(CHECK_EXIT);
}

typedef struct Verdict {
  bool all;    /* can't go on */
  bool failed; /* one ended with a report */
  bool gone;   /* one ended, died, or gave up a communicator */
} Verdict;

static bool any_aborted(void) {
  for (int i = 0; i < world->n_comms; i++)
    if (world->comms[i].aborted) return true;
  return false;
}

/* Ranks that ask must have looked ASKS times since the first time that all were found stalled at `seen`. */
static Verdict look_around(uint32_t seen) {
  static uint32_t base[MAX_RANKS], base_at;
  static bool has_base;
  Verdict v = {.all = true, .gone = any_aborted()};
  if (!has_base || base_at != seen) {
    for (int r = 0; r < n_world; r++) base[r] = world->members[r].looks;
    base_at = seen;
    has_base = true;
  }
  for (int r = 0; r < n_world; r++) {
    const Member *m = &world->members[r];
    if (m->state == FAILED) v.failed = true;
    if (m->state == FINISHED || m->state == FAILED || world_has_died(r)) v.gone = true;
    else if (m->state == ABSENT || m->stalled_at != seen + 1) v.all = has_base = false;
    else if (m->asks && m->looks - base[r] < ASKS) v.all = false;
  }
  return v;
}

static bool is_over_limit(void) {
  uint64_t last = 0, now = now_ns();
  for (int r = 0; r < n_world; r++)
    if (world->members[r].moved_at > last) last = world->members[r].moved_at;
  return now > last && now - last > limit_ns;
}

/* Sound: a rank is marked stalled at P only after it looked at everything since P, and each change of the world moves P. */
static void stall(uint32_t seen, const char *waiting, bool asks) {
  static uint64_t stalled_since;
  Member *m = me();
  bool is_new = m->stalled_at != seen + 1;
  if (is_new) {
    snprintf(m->waiting, sizeof m->waiting, "%s", waiting);
    check_list_pending(m->pending, sizeof m->pending);
    m->asks = asks;
    m->stalled_at = seen + 1;
    stalled_since = now_ns();
  }
  m->looks++;
  Verdict v = look_around(seen);
  if (world->progress != seen) return;
  if (v.all && v.failed) _exit(CHECK_EXIT); /* the other rank said why */
  if (v.all && reports_hangs && (!v.gone || now_ns() - stalled_since > GRACE_S * 1000000000ull)) report_hang();
  if (is_over_limit()) report_hang();
  nap(seen);
}

/* ---- shared tables ---- */

static void lock_world(void) {
  while (atomic_exchange(&world->lock, true)) sched_yield();
}

SharedComm *world_find_comm(uint64_t key) {
  int i = 0;
  lock_world();
  while (i < world->n_comms && world->comms[i].key != key) i++;
  if (i == MAX_COMMS) check_fatal("unsupported", "more than %d communicators", MAX_COMMS);
  world->comms[i].key = key;
  if (i == world->n_comms) world->n_comms++;
  world->lock = false;
  return &world->comms[i];
}

Box *world_box(SharedComm *comm, int from, int to) {
  if (!comm->boxes[from][to]) {
    lock_world();
    if (!comm->boxes[from][to]) {
      if (world->n_boxes == MAX_BOXES) check_fatal("unsupported", "more than %d pairs of ranks that meet", MAX_BOXES);
      comm->boxes[from][to] = ++world->n_boxes;
    }
    world->lock = false;
  }
  return &world->boxes[comm->boxes[from][to] - 1];
}

/* ---- start ---- */

static void name_world(char *path, size_t capacity) {
  const char *given = getenv("PPC_CHECK_WORLD"), *job = getenv("PPC_JOB");
  if (given) snprintf(path, capacity, "%s", given);
  else if (job && !strchr(job, '/')) snprintf(path, capacity, "/dev/shm/ppc-check-%u-%s", (unsigned)geteuid(), job);
  else if (n_world == 1) snprintf(path, capacity, "/dev/shm/ppc-check-%u-p%d", (unsigned)geteuid(), (int)getpid());
  else check_fatal("internal", "%d ranks, and neither PPC_CHECK_WORLD nor PPC_JOB is set", n_world);
}

/* The file goes when all have come; nobody comes later. */
static void unlink_when_complete(const char *path) {
  for (int r = 0; r < n_world; r++)
    if (world->members[r].state == ABSENT) return;
  unlink(path);
}

__attribute__((constructor)) static void set_up(void) {
  char path[1024];
  const char *hang = getenv("PPC_CHECK_HANG");
  n_world = (int)check_setting("PPC_CHECK_RANKS", "PPC_RANKS", 1);
  reports_hangs = !hang || strcmp(hang, "wait") != 0;
  limit_ns = (uint64_t)check_setting("PPC_CHECK_LIMIT", NULL, 300) * 1000000000u;
  if (n_world < 1 || n_world > MAX_RANKS || check_rank() >= n_world)
    check_fatal("unsupported", "rank %d of %d; at most %d", check_rank(), n_world, MAX_RANKS);
  name_world(path, sizeof path);
  world_file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (world_file < 0 || ftruncate(world_file, sizeof *world) != 0) check_fatal("internal", "can't make %s", path);
  world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED, world_file, 0);
  if (world == MAP_FAILED) check_fatal("internal", "can't map %s", path);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = check_rank(), .l_len = 1};
  if (fcntl(world_file, F_OFD_SETLK, &lock) != 0) check_fatal("internal", "another rank %d runs in %s", check_rank(), path);
  snprintf(me()->program, sizeof me()->program, "%s", check_program());
  me()->moved_at = now_ns();
  me()->state = ALIVE;
  check_hooks = (CheckHooks){read_progress, stall, resume, finish};
  unlink_when_complete(path);
}
