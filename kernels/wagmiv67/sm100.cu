// One of the three sm_100a forms alone and under one name, so that `rgpu disasm --diff` compares them (README.md).
// -DFORM=1 blackwell.cuh, 2 pair.cuh, 3 aligned.cuh. Nothing runs this file.
#define wagmi_blackwell wagmi_sm100
#define wagmi_pair wagmi_sm100
#define wagmi_aligned wagmi_sm100
#if FORM == 1
#include "blackwell.cuh"
#elif FORM == 2
#include "pair.cuh"
#elif FORM == 3
#include "aligned.cuh"
#else
#error "-DFORM=1, 2 or 3"
#endif
