#include "core/exec.h"

u64 exec_kv_bytes(const struct net *net)
{
    u64 sum = 0;
    for (u32 i = 0; i < net->n_kv; i++) {
        u64 n = 0;
        CHECK(quant_bytes(net->profile.kv, net->kv[i].k_width + net->kv[i].v_width, &n));
        sum += n;
    }
    return sum;
}

u64 exec_state_bytes(const struct net *net)
{
    u64 sum = 0;
    for (u32 i = 0; i < net->n_states; i++) sum += (u64)net->states[i].width * sizeof(float);
    return sum;
}
