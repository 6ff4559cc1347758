// Measures what a tool costs the program that it profiles, and runs kernels of known lengths to compare two tools.
//
//   costs ranges     ns of one push and pop, the median of 200 batches of 1,000
//   costs launches   ns of one launch of an empty kernel (the call alone), and with the wait for all of a batch,
//                    the medians of 200 batches of 500; each launch inside a range of its own as well
//   costs lengths    100 kernels of each length, one after the other, in a range named after the length
//   costs exit       one kernel, and the end of the process by `_exit` a second later
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "buffers.h"

__global__ void empty() {}

__global__ void spin(long long cycles) {
    long long begun = clock64();
    while (clock64() - begun < cycles) {
    }
}

static double now() {
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static double median(std::vector<double> all) {
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

static void ranges() {
    std::vector<double> each;
    for (int batch = 0; batch < 200; batch++) {
        double begun = now();
        for (int i = 0; i < 1000; i++) {
            nvtxRangePushA("range");
            nvtxRangePop();
        }
        each.push_back((now() - begun) / 1000);
    }
    std::printf("range_ns %.1f\n", median(each));
}

static void launches() {
    for (bool ranged : {false, true}) {
        std::vector<double> call, whole;
        for (int batch = 0; batch < 220; batch++) {
            double begun = now();
            for (int i = 0; i < 500; i++) {
                if (ranged) {
                    nvtxRangePushA("launch");
                }
                empty<<<1, 32>>>();
                if (ranged) {
                    nvtxRangePop();
                }
            }
            double called = now();
            check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
            if (batch >= 20) {
                call.push_back((called - begun) / 500);
                whole.push_back((now() - begun) / 500);
            }
        }
        const char *what = ranged ? "ranged" : "plain";
        std::printf("%s_call_ns %.1f\n%s_whole_ns %.1f\n", what, median(call), what, median(whole));
    }
}

static void lengths() {
    for (int micro : {2, 10, 50, 200, 1000}) {
        std::string name = "us" + std::to_string(micro);
        nvtxRangePushA(name.c_str());
        for (int i = 0; i < 100; i++) {
            spin<<<1, 32>>>(micro * 1500LL);
            check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        }
        nvtxRangePop();
    }
}

int main(int count, char **words) {
    std::string what = count > 1 ? words[1] : "";
    empty<<<1, 32>>>();
    spin<<<1, 32>>>(1000);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    if (what == "ranges") {
        ranges();
    } else if (what == "launches") {
        launches();
    } else if (what == "lengths") {
        lengths();
    } else if (what == "exit") {
        sleep(1);
        _exit(0);
    } else {
        std::fprintf(stderr, "usage: costs ranges|launches|lengths|exit\n");
        return 2;
    }
    return 0;
}
