/* What the device side shares: who makes an access, how threads of a block meet, and what kernels_host.h calls. */
#ifndef CHECK_DEVICE_H
#define CHECK_DEVICE_H

#include "core.h"

enum { WARP = 32, MAX_THREADS = 1024, LANE_BITS = 4, STAMP_BITS = 18, DYNAMIC_BYTES = 227 << 10 };
_Static_assert(MAX_LANES <= 1 << LANE_BITS, "a serial holds a lane");

/* An epoch is who made an access, and when:
 *   serial  32 bits  of the block of a kernel, or of another op; the lowest are its lane, so in one lane serials grow
 *   flags    3 bits  below
 *   node    11 bits  of the tree over the block's threads: 1 is the block, 2 and 3 are its halves, 1024 + i is thread i
 *   stamp   18 bits  of the thread: grows when it meets others
 * 0: nobody. Two epochs that differ in their serials need nothing else to be compared. */
#define EPOCH_ATOMIC (1u << 31)
#define EPOCH_BLOCKS (1u << 30) /* other blocks of the kernel made such accesses too, unordered with this one */
#define EPOCH_MORE (1u << 29)   /* of a read: other lanes made such reads too; Zone.others says which */
#define EPOCH_STAMP ((1u << STAMP_BITS) - 1)
#define STAMP_PENDING EPOCH_STAMP /* an asynchronous copy: before nothing until its thread has waited for it */

/* Who accesses now. */
typedef struct CheckNow {
  uint64_t epoch;
  uint32_t first_serial;     /* of the op; what is not below it is the same op's */
  uint32_t safe[MAX_LANES];  /* the op comes after what has no greater serial in that lane */
  uint32_t block_stamp;      /* what the block did at lower stamps comes before the thread's present */
  uint32_t warp_stamp;       /* what its warp did */
  uint32_t half_stamp;       /* what its half of the warp did */
  const uint32_t *known;     /* [WARP] what that lane of the warp did; may be less than the above */
  uint32_t block;            /* its number in the grid */
} CheckNow;
extern CheckNow check_now;

/* race.c */
void check_block_begin(void); /* the next serial */
void check_shared_memory(char *start, size_t bytes, char *dynamic, size_t dynamic_bytes);
size_t check_shared_touched(void); /* bytes of what isn't dynamic that the present block has touched */
/* access.c. `code`: in device code, where. */
enum { READ = 0, WRITE = 1, ATOMIC = 2 | WRITE, COPY = 4 | WRITE }; /* kinds; COPY: pending */
void check_access_at(const void *address, size_t bytes, int kind, const void *code);
void check_access_arrive(const void *address, size_t bytes); /* a COPY has been waited for */
/* " at file:line" of device code. */
const char *check_place_in_kernel(const void *code);
const char *check_base_name(const char *path);
bool check_is_stack(const void *address);

/* device.c: the running thread joins the others of `mask`; when all are there, the last to come calls `finish` with
 * what each of them brought. */
typedef struct Meeting {
  const char *call, *file; /* where it waits */
  int line;
  unsigned mask;
  void (*finish)(unsigned mask, struct Meeting *const *of_lane);
  uint64_t value;          /* brought and taken away */
  int source;              /* lane whose value is wanted */
  const void *in[2];
  void *out;
} Meeting;
void check_meet(Meeting *meeting);
int check_thread_number(void);
const char *check_running_kernel(void);

#endif
