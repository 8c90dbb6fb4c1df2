/* Pictures of hand-made timelines: where things lie, colours that can be told apart and read, numbers as text, and
 * names that try to break out of the page. Browsers read the pages in testdata/simulate/. */
#include "compiler/picture.h"

#include <math.h>
#include <stdlib.h>

#include "compiler/base/test.h"

static Arena *arena;

/* Two ranks, stages 0 and 2 on rank 0, 1 and 3 on rank 1; a pair that runs at once. */
static const TimelineTask tasks[] = {
    {.rank = 0, .stage = 0, .microbatch = 0, .kind = PP_FWD, .start = 0, .end = 1, .overlap = -1, .line = "a.pp:1"},
    {.rank = 0, .stage = 2, .microbatch = 0, .kind = PP_FWD, .start = 1, .end = 3, .overlap = 0, .critical = true},
    {.rank = 0, .stage = 0, .microbatch = 1, .kind = PP_BWD_INPUT, .start = 1, .end = 3, .overlap = 0},
    {.rank = 1, .stage = 3, .microbatch = 0, .kind = PP_BWD_WEIGHT, .start = 4, .end = 5, .overlap = -1, .line = "</script><script>x"},
    {.rank = 1, .stage = 1, .microbatch = -1, .kind = PP_UPDATE, .start = 5, .end = 5.5, .overlap = -1},
};
static const TimelineTransfer transfers[] = {
    {.value = "x \"<&>\" \xff]]>", .microbatch = 0, .from = 0, .to = 1, .made = 1, .used = 3, .start = 3, .end = 4, .bytes = 4096}};
static const TimelineLevel levels[] = {{0, 1}, {2, 3}, {5, 0}};

static Timeline sample(const TimelineMemory memory[2]) {
  return (Timeline){.title = "a <b> & \"c\"\n\xc3\x28", .n_ranks = 2, .n_stages = 4, .n_microbatches = 2, .n_tasks = 5, .tasks = tasks,
                    .n_transfers = 1, .transfers = transfers, .memory = memory, .step_time = 5.5, .bubble = 2.5, .bubble_rate = 2.5 / 5.5};
}

static const TimelineMemory memory[2] = {{3, levels, 3}, {0, NULL, 0}};

static void test_places(void) {
  Timeline t = sample(memory);
  const Timeline *one[] = {&t};
  PicturePanel p = picture_plan(arena, one, 1).panels[0];
  CHECK(p.first_task[0] == 0 && p.first_task[1] == 3 && p.first_task[2] == 5);
  CHECK(p.lane[0] == PICTURE_WHOLE && p.lane[1] == PICTURE_UPPER && p.lane[2] == PICTURE_LOWER && p.lane[3] == PICTURE_WHOLE);
  CHECK(p.n_chunks == 2 && p.chunk[0] == 0 && p.chunk[2] == 1 && p.chunk[1] == 0 && p.chunk[3] == 1);
  CHECK(p.span == 5.5 && p.end == 5.5 && p.peak == 3);
  CHECK(picture_work(&p, 0) == 3 && picture_work(&p, 1) == 1.5);
}

static void test_one_scale(void) {
  Timeline a = sample(NULL), b = sample(NULL);
  const Timeline *both[] = {&a, &b};
  b.step_time = 11;
  Picture p = picture_plan(arena, both, 2);
  CHECK(p.panels[0].span == 11 && p.panels[1].span == 11);
  b.in_seconds = true; /* another unit: each its own scale */
  p = picture_plan(arena, both, 2);
  CHECK(p.panels[0].span == 5.5 && p.panels[1].span == 11);
}

static void test_nothing(void) {
  Timeline t = {.title = NULL, .n_ranks = 1, .n_stages = 1, .n_microbatches = 1};
  const Timeline *one[] = {&t};
  Str svg = {0}, html = {0};
  picture_svg(arena, one, 1, &svg);
  picture_html(arena, one, 1, &html);
  CHECK(str_ends_with(str_text(&svg), "</svg>\n") && str_ends_with(str_text(&html), "</html>\n"));
  CHECK(!strstr(str_text(&svg), "nan") && !strstr(str_text(&svg), "inf"));
  str_free(&svg);
  str_free(&html);
}

static void test_numbers(void) {
  Timeline t = sample(memory);
  const Timeline *one[] = {&t};
  PicturePanel p = picture_plan(arena, one, 1).panels[0];
  CHECK_TEXT(picture_time(arena, &p, 1.25), "1.25");
  CHECK_TEXT(picture_time(arena, &p, 3), "3");
  CHECK_TEXT(picture_caption(arena, &p), "predicted: step 5.5, bubble 2.5 (45.5 % of the step)");
  CHECK_TEXT(picture_level(arena, &p, 3), "3");
  const Picture picture = picture_plan(arena, one, 1);
  CHECK_TEXT(picture_memory_meaning(&picture), "live stashes");
  t.in_seconds = t.memory_in_bytes = t.measured = true;
  CHECK_TEXT(picture_memory_meaning(&picture), "memory in use");
  t.memory = NULL;
  const Picture bare = picture_plan(arena, one, 1);
  CHECK(!picture_memory_meaning(&bare));
  t.step_time = 0.0125;
  p = (PicturePanel){.timeline = &t, .span = 0.0125, .unit = 1e-3, .unit_name = " ms"};
  CHECK_TEXT(picture_time(arena, &p, 0.0125), "12.5 ms");
  CHECK_TEXT(picture_level(arena, &p, 5 * 1024 * 1024), "5.0 MiB");
  CHECK_TEXT(picture_bytes(arena, 1000), "1000 B");
  CHECK_TEXT(picture_bytes(arena, 123456), "121 KiB");
  CHECK(picture_tick(100, 10) == 10 && picture_tick(7, 10) == 1 && fabs(picture_tick(0.03, 10) - 0.005) < 1e-12);
}

static double part(unsigned color, int shift) {
  double c = (color >> shift & 0xff) / 255.0;
  return c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4);
}

static double luminance(unsigned c) { return 0.2126 * part(c, 16) + 0.7152 * part(c, 8) + 0.0722 * part(c, 0); }

/* WCAG asks 4.5 of small text. */
static void test_text_on_colours_can_be_read(void) {
  for (int k = 0; k < PICTURE_CLASS_COUNT; k++) {
    for (int chunk = 0; chunk < 12; chunk++) {
      unsigned fill = picture_fill((PictureClass)k, chunk, 12);
      double a = luminance(fill), b = luminance(picture_ink(fill));
      CHECK((fmax(a, b) + 0.05) / (fmin(a, b) + 0.05) >= 4.5);
    }
  }
}

/* Linear colours as people without one kind of cone see them (Viénot 1999; Brettel 1997 for blue, simplified), with
 * their distance. */
static double distance(unsigned x, unsigned y, const double see[9]) {
  double sum = 0;
  for (int row = 0; row < 3; row++) {
    double difference = 0;
    for (int k = 0; k < 3; k++) difference += see[3 * row + k] * (cbrt(part(x, 16 - 8 * k)) - cbrt(part(y, 16 - 8 * k)));
    sum += difference * difference;
  }
  return sqrt(sum);
}

static void test_colours_can_be_told_apart(void) {
  static const double sights[][9] = {
      {1, 0, 0, 0, 1, 0, 0, 0, 1},
      {0.1124, 0.8876, 0, 0.1124, 0.8876, 0, 0.0040, -0.0040, 1},  /* without red cones */
      {0.2920, 0.7079, 0, 0.2920, 0.7079, 0, -0.0223, 0.0223, 1},  /* without green ones */
      {1, 0.1446, -0.1446, 0, 0.8592, 0.1408, 0, 0.8592, 0.1408},  /* without blue ones */
  };
  for (size_t s = 0; s < sizeof sights / sizeof *sights; s++)
    for (int a = 0; a < PICTURE_CLASS_COUNT; a++)
      for (int b = 0; b < a; b++) {
        double d = distance(picture_fill((PictureClass)a, 0, 1), picture_fill((PictureClass)b, 0, 1), sights[s]);
        if (d <= 0.1) printf("%s and %s differ by %.3f, sight %zu\n", picture_letter((PictureClass)a), picture_letter((PictureClass)b), d, s);
        CHECK(d > 0.1);
      }
}

static void test_names_stay_text(void) {
  Timeline t = sample(memory);
  const Timeline *one[] = {&t};
  Str svg = {0}, html = {0};
  picture_svg(arena, one, 1, &svg);
  picture_html(arena, one, 1, &html);
  CHECK(strstr(str_text(&svg), "a &lt;b&gt; &amp; &quot;c&quot;?\?("));
  CHECK(strstr(str_text(&svg), "takes x &quot;&lt;&amp;&gt;&quot; ?]]&gt; from rank 0, 4.0 KiB"));
  CHECK(!strstr(str_text(&html), "</script><script>x") && strstr(str_text(&html), "\\u003c/script>\\u003cscript>x"));
  CHECK(strstr(str_text(&html), "<h2>a &lt;b&gt; &amp;"));
  CHECK_TEXT(picture_utf8(arena, "\xe2\x82\xac \xed\xa0\x80 \xf0\x9f\x99\x82 \x80\x01"), "\xe2\x82\xac ??? \xf0\x9f\x99\x82 ??");
  CHECK_TEXT(picture_utf8(arena, "\xef\xbf\xbd\xef\xbf\xbe\xef\xbf\xbf"), "\xef\xbf\xbd?\?\?\?\?\?");
  str_free(&svg);
  str_free(&html);
}

int main(void) {
  arena = arena_create();
  TEST(test_places);
  TEST(test_one_scale);
  TEST(test_nothing);
  TEST(test_numbers);
  TEST(test_text_on_colours_can_be_read);
  TEST(test_colours_can_be_told_apart);
  TEST(test_names_stay_text);
  arena_destroy(arena);
  return test_end();
}
