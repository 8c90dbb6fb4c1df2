// runtime/kernels/math.h as device code: one text for all targets, so the same bits (nvcc -fmad=false; its
// divisions and square roots are rounded as IEEE 754 says). Also conversions and aligned pieces of a row.
#ifndef PP_CUDA_MATH_CUH
#define PP_CUDA_MATH_CUH

#define PP_DEVICE __device__ static inline
#define PP_INLINE PP_DEVICE
#ifdef __CUDACC__
#define PP_UNROLL(text) _Pragma(text)
#else
#define PP_UNROLL(text)
#endif
#include "runtime/kernels/math.h"

// One value of storage type `From` as another; integers are not narrowed here.
template <typename To, typename From> struct pp_conversion {
  PP_DEVICE To of(From x) { return (To)x; }
};
template <> struct pp_conversion<pp_bf16, float> {
  PP_DEVICE pp_bf16 of(float x) { return pp_bf16_from_f32(x); }
};
template <> struct pp_conversion<pp_bf16, double> {
  PP_DEVICE pp_bf16 of(double x) { return pp_bf16_from_f32((float)x); }
};
template <typename To> struct pp_conversion<To, pp_bf16> {
  PP_DEVICE To of(pp_bf16 x) { return (To)pp_f32_from_bf16(x); }
};
template <> struct pp_conversion<pp_bf16, pp_bf16> {
  PP_DEVICE pp_bf16 of(pp_bf16 x) { return x; }
};
template <typename To, typename From> PP_DEVICE To pp_convert(From x) { return pp_conversion<To, From>::of(x); }

// What is added in: bf16 in f32, with a rounding after each addition.
template <typename T> struct pp_wide { typedef T type; };
template <> struct pp_wide<pp_bf16> { typedef float type; };

// N values of T that are loaded and stored at once; buffers are aligned to PP_ALIGNMENT.
template <typename T, int N> struct alignas(sizeof(T) * N) pp_pack { T at[N]; };
typedef pp_pack<float, 4> pp_f32x4;
typedef pp_pack<double, 4> pp_f64x4;
typedef pp_pack<int32_t, 4> pp_i32x4;
typedef pp_pack<uint8_t, 4> pp_boolx4;
typedef pp_pack<pp_bf16, 4> pp_bf16x4;

#endif
