// Functions of device code, with results that the CUDA programming guide or the PTX ISA gives. Plain CUDA: nvcc
// compiles it too.
#include <cassert>
#include <climits>
#include <cmath>

__host__ __device__ bool near(double a, double b) { return fabs(a - b) <= 1e-6 * fmax(1, fabs(b)); }

static_assert(sizeof(uchar4) == 4 && alignof(uchar4) == 4 && sizeof(char3) == 3 && alignof(char3) == 1, "");
static_assert(sizeof(float3) == 12 && alignof(float3) == 4 && alignof(float2) == 8 && alignof(float4) == 16, "");
static_assert(sizeof(double2) == 16 && alignof(double2) == 16 && alignof(longlong2) == 16 && alignof(short4) == 8, "");
static_assert(sizeof(ulong3) == 24 && alignof(ushort2) == 4 && sizeof(uint1) == 4, "");

__global__ void integers() {
    assert(__popcll(0xFF00000000000001ull) == 9 && __clzll(1) == 63 && __ffsll(1ll << 40) == 41 && __ffsll(0) == 0);
    assert(__brev(1) == 0x80000000u && __brevll(2) == 1ull << 62);
    assert(__byte_perm(0x33221100, 0x77665544, 0x7520) == 0x77552200u);
    assert(__byte_perm(0x00008000, 0, 0x9999) == 0xFFFFFFFFu);  // the sign of byte 1, four times
    assert(__funnelshift_l(0x80000000u, 1, 1) == 3 && __funnelshift_r(0x80000000u, 1, 31) == 3);
    assert(__funnelshift_lc(5, 6, 40) == 5 && __funnelshift_rc(5, 6, 40) == 6);
    assert(__mul24(-3, 5) == -15 && __mul24(0x1000001, 7) == 7 && __umul24(0xFF000003u, 2) == 6);
    assert(__mulhi(INT_MIN, 2) == -1 && __umulhi(0x80000000u, 4) == 2 && __mul64hi(-1, 1) == -1);
    assert(__umul64hi(1ull << 63, 4) == 2 && __sad(-5, 3, 1) == 9 && __usad(3, 5, 1) == 3);
    assert(__hadd(-3, 2) == -1 && __rhadd(-3, 2) == 0 && __uhadd(3, 4) == 3 && __urhadd(3, 4) == 4);
    assert(__dp4a(0x01FF0203, 0x01010101, 10) == 15 && __dp4a(0x01FF0203u, 0x01010101u, 10u) == 271);
    assert(min(-1, 2) == -1 && max(3u, 2) == 3 && min(1.5f, 2) == 1.5f && max(2ll, 3) == 3);
}

__global__ void floats(float x) {
    assert(near(__sinf(x), sin(0.5)) && near(__cosf(x), cos(0.5)) && near(__tanf(x), tan(0.5)));
    assert(near(__powf(x, 3), 0.125) && near(__exp10f(x), 3.16227766) && near(__log2f(x), -1) &&
           near(__log10f(x), -0.30103));
    assert(__saturatef(x - 1) == 0 && __saturatef(x) == x && __saturatef(x + 1) == 1 && __saturatef(nanf("")) == 0);
    assert(__fadd_rn(x, x) == 1 && __fmul_rn(x, x) == 0.25f && __fsub_rn(x, 1) == -0.5f && __fdiv_rn(x, 2) == 0.25f);
    assert(__fsqrt_rn(4 * x * x) == 1 && fdividef(x, 2) == 0.25f && near(norm3df(1, 2, 2), 3) &&
           near(rnorm3df(1, 2, 2), 1. / 3));
    assert(near(rhypotf(3, 4), 0.2) && sinpif(1e6f) == 0 && sinpif(x) == 1 && cospif(x) == 0 && cospif(3) == -1);
    float sine, cosine;
    sincosf(x, &sine, &cosine);
    assert(near(sine, sin(0.5)) && near(cosine, cos(0.5)) && near(rsqrt(4.0), 0.5) && near(normcdff(0), 0.5));
    assert(__float2int_rn(x) == 0 && __float2int_rn(1.5f) == 2 && __float2int_rz(-1.5f) == -1 &&
           __float2int_ru(x) == 1);
    assert(__float2int_rd(-x) == -1 && __float2int_rn(1e20f) == INT_MAX && __float2int_rn(-1e20f) == INT_MIN);
    assert(__float2uint_rn(-3) == 0 && __float2uint_rz(5e9f) == UINT_MAX && __double2int_rn(2.5) == 2);
    assert(__int2float_rn(3) == 3 && __double2ll_rd(-0.5) == -1 && __hiloint2double(0x3FF00000, 0) == 1);
    assert(__longlong_as_double(__double_as_longlong(0.1)) == 0.1);
}

__global__ void warps(int* x) {
    const int lane = threadIdx.x;
    const unsigned all = 0xFFFFFFFF;
    assert(__reduce_add_sync(all, lane) == 496 && __reduce_min_sync(all, lane - 5) == -5 &&
           __reduce_max_sync(all, 3u) == 3);
    assert(__reduce_or_sync(all, 1u << lane) == all && __reduce_and_sync(all, 6u) == 6 &&
           __reduce_xor_sync(all, 1u << lane) == all);
    assert(__match_any_sync(all, lane / 8) == 0xFFu << lane / 8 * 8);
    int same;
    assert(__match_all_sync(all, 7, &same) == all && same == 1);
    assert(__match_all_sync(all, lane, &same) == 0 && same == 0);
    __stcs(&x[lane], lane);
    assert(__ldcs(&x[lane]) == lane && __ldcg(&x[lane]) == lane && __ldca(&x[lane]) == lane && __ldg(&x[lane]) == lane);
    if (lane == 0) {
        unsigned n = 1;
        x[0] = 0;
        assert(atomicDec((unsigned*)x, 9) == 0 && x[0] == 9 && atomicDec((unsigned*)x, 9) == 9 && n == 1);
    }
}

int main() {
    int* x;
    cudaMalloc(&x, 32 * sizeof(int));
    integers<<<1, 1>>>();
    floats<<<1, 1>>>(0.5f);
    warps<<<1, 32>>>(x);
    return cudaDeviceSynchronize() != cudaSuccess;
}
