/* What `ppc check` prints: text for people, or one JSON object. */
#ifndef PPC_REPORT_H
#define PPC_REPORT_H

#include "compiler/base/str.h"
#include "compiler/plan.h"

/* Of a step, by costs that are estimated from the model; null where there is no schedule. */
typedef struct {
  double step_time;   /* s */
  double bubble_rate; /* of the step */
} ReportEstimate;

/* Both append. A plan exists only when the proof held, so the verdict is always a good one; warnings are
 * diagnostics and stand on stderr. */
void report_text(const Plan *plan, const ReportEstimate *estimate, Str *out);
void report_json(const Plan *plan, const ReportEstimate *estimate, Str *out);

#endif
