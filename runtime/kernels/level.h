/* Which of the objects that were built for several x86-64 levels is used. Objects carry their level
 * in their symbols: PP_LEVEL is 2, 3 or 4, or 0 for the one baseline. */
#ifndef PP_KERNELS_LEVEL_H
#define PP_KERNELS_LEVEL_H

#ifndef PP_LEVEL
#define PP_LEVEL 0
#endif
#define PP_PASTE_(a, b) a##b
#define PP_PASTE(a, b) PP_PASTE_(a, b)
/* pp_attention_f32 → pp_attention_f32_v3 */
#define PP_LEVELED(name) PP_PASTE(PP_PASTE(name, _v), PP_LEVEL)

#endif
