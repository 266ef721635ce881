#include "serve/reject.h"

#include <math.h>

#include "base/num.h"
#include "core/sample.h"

/* Noise that is independent of what drew the guess. */
enum { KEEP = 0x6b656570, REPLACE = 0x72657073 };

/* argmax of log(weight) + Gumbel noise is a draw by weight. */
static i32 draw(const float *p, const float *q, u32 n, i32 guess, struct reject_key key)
{
    i32 best = guess; /* stays when rounding left p nothing more than q */
    float best_z = -INFINITY;
    for (u32 i = 0; i < n; i++) {
        float w = q ? p[i] - q[i] : (i32)i == guess ? 0 : p[i];
        if (!(w > 0)) continue;
        float z = num_log(w) + sample_gumbel(key.seed ^ REPLACE, key.choice, key.position, i);
        if (z > best_z) {
            best_z = z;
            best = (i32)i;
        }
    }
    return best;
}

i32 reject_judge(const float *p, const float *q, u32 n, i32 guess, struct reject_key key)
{
    float g = sample_gumbel(key.seed ^ KEEP, key.choice, key.position, (u32)guess);
    float u = num_exp(-num_exp(-g)); /* uniform again */
    return u * (q ? q[guess] : 1) < p[guess] ? guess : draw(p, q, n, guess, key);
}
