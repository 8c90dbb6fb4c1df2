// Dropout's uniforms: the numbers of pp_random_uniform (runtime/random.c) one element at a time. In: seed and step
// from the device, microbatch, key, element. Out: the same f32 in [0, 1). Philox4x32-10; the first call makes the
// stream of (seed, step, microbatch, key), the second an element of it.
#ifndef PP_CUDA_RANDOM_CUH
#define PP_CUDA_RANDOM_CUH

#include "runtime/cuda/state.h"
#include "runtime/kernels/cuda/math.cuh"

struct pp_words { uint32_t at[4]; };

PP_DEVICE pp_words pp_philox_words(pp_words c, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c.at[0], p1 = (uint64_t)0xCD9E8D57u * c.at[2];
    c = pp_words{{(uint32_t)(p1 >> 32) ^ c.at[1] ^ k0, (uint32_t)p1, (uint32_t)(p0 >> 32) ^ c.at[3] ^ k1, (uint32_t)p0}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

PP_DEVICE pp_words pp_random_stream(const pp_random_state *random, int microbatch, uint64_t key) {
  uint64_t seed = random->seed, step = random->step;
  pp_words counter = {{(uint32_t)key, (uint32_t)(key >> 32), (uint32_t)step, (uint32_t)microbatch}};
  return pp_philox_words(counter, (uint32_t)seed, (uint32_t)(seed >> 32) ^ (uint32_t)(step >> 32) ^ 0x756e6966u);
}

// Elements 64 g + 16 w + l of group g are word w of counter 16 g + l.
PP_DEVICE float pp_random_element(const pp_words &stream, int64_t element) {
  uint64_t counter = (uint64_t)(element / 64) * 16 + (uint64_t)(element % 16);
  pp_words c = {{(uint32_t)counter, (uint32_t)(counter >> 32), stream.at[2], stream.at[3]}};
  c = pp_philox_words(c, stream.at[0], stream.at[1]);
  int word = (int)(element / 16 % 4);
  uint32_t bits = word == 0 ? c.at[0] : word == 1 ? c.at[1] : word == 2 ? c.at[2] : c.at[3];
  return (float)(int32_t)(bits >> 8) * 0x1p-24f;
}

#endif
