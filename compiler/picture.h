/* Pictures of timelines: one SVG, or one HTML page with zoom. Text only; whoever calls writes the file.
 * Timelines of one picture stand one above the other, on one scale when they are in one unit. */
#ifndef PPC_PICTURE_H
#define PPC_PICTURE_H

#include "compiler/base/arena.h"
#include "compiler/base/str.h"
#include "compiler/timeline.h"

void picture_svg(Arena *arena, const Timeline *const *timelines, int n, Str *out);
void picture_html(Arena *arena, const Timeline *const *timelines, int n, Str *out);

/* --- what both share --------------------------------------------------------------------------------- */

/* What a box is: the letter that it shows, and its colour. */
typedef enum { PICTURE_F, PICTURE_B, PICTURE_I, PICTURE_W, PICTURE_AFTER, PICTURE_CLASS_COUNT } PictureClass;

PictureClass picture_class(pp_task_kind kind);
const char *picture_letter(PictureClass class);  /* "F"; "U" after the loop */
const char *picture_meaning(PictureClass class); /* "forward" */
/* Fill of a stage that is number `chunk` of n on its rank, and a colour that reads well on it: 0xrrggbb. */
unsigned picture_fill(PictureClass class, int chunk, int n_chunks);
unsigned picture_ink(unsigned fill);

/* Where a task lies in its row: alone, or above or below one that runs at the same time. */
typedef enum { PICTURE_WHOLE, PICTURE_UPPER, PICTURE_LOWER } PictureLane;

typedef struct {
  const Timeline *timeline;
  double end;             /* of its last task */
  double span;            /* time from the left edge to the right one */
  int *first_task;        /* [n_ranks + 1] */
  unsigned char *lane;    /* [n_tasks] PictureLane */
  int *chunk;             /* [n_stages] number of the stage among those of its rank */
  int n_chunks;           /* most stages on a rank */
  double peak;            /* largest of all ranks; 0: no memory is known */
  double unit;            /* what a time is divided by before it is printed */
  const char *unit_name;  /* " ms" */
} PicturePanel;

typedef struct {
  int n;
  PicturePanel *panels;
} Picture;

Picture picture_plan(Arena *arena, const Timeline *const *timelines, int n);
const char *picture_memory_meaning(const Picture *picture); /* of the curve beneath; null: there is none */

double picture_work(const PicturePanel *panel, int rank); /* time in which it runs something */
/* "12.5 ms"; the panel's unit. */
const char *picture_time(Arena *arena, const PicturePanel *panel, double time);
/* "3.2 MiB", or a number of stashes. */
const char *picture_level(Arena *arena, const PicturePanel *panel, double value);
const char *picture_bytes(Arena *arena, double bytes);
/* "predicted: step 27, bubble 3 (11.1 % of the step)". */
const char *picture_caption(Arena *arena, const PicturePanel *panel);
/* A round distance between marks, for about `n` of them. */
double picture_tick(double span, int n);
/* Text as UTF-8 without control characters: what isn't becomes '?'. */
const char *picture_utf8(Arena *arena, const char *text);
/* The same for XML and HTML. */
const char *picture_escape(Arena *arena, const char *text);

#endif
