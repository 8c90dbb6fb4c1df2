/* SHA-256 through libcrypto: the only file that sees it. */
#include "internal.h"

#include <openssl/evp.h>
#include <stdio.h>


static EVP_MD_CTX *context_of(pp_sha256 *hash) { return (EVP_MD_CTX *)(void *)hash; }

pp_sha256 *pp_sha256_create(void) {
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  if (context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1) return (pp_sha256 *)(void *)context;
  EVP_MD_CTX_free(context);
  return NULL;
}

void pp_sha256_add(pp_sha256 *hash, const void *bytes, size_t size_bytes) {
  EVP_DigestUpdate(context_of(hash), bytes, size_bytes);
}

void pp_sha256_finish(pp_sha256 *hash, char out_text[65]) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int n = 0;
  EVP_DigestFinal_ex(context_of(hash), digest, &n);
  EVP_MD_CTX_free(context_of(hash));
  for (unsigned i = 0; i < 32; i++) snprintf(out_text + 2 * i, 3, "%02x", digest[i]);
}
