// The end of an imported tensor, on a driver that this file replaces.

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "tensor/device/cuda/cuda_pools.hpp"

namespace {

std::vector<std::string> calls;
CUresult created = CUDA_SUCCESS, recorded = CUDA_SUCCESS;

}  // namespace

namespace shared_tensor::tensor {

CUcontext primary_context(int) { return nullptr; }

const CudaDriver& driver() {
    static const CudaDriver kDriver = [] {
        CudaDriver fake;
        fake.cuGetErrorName = [](CUresult, const char**) { return CUDA_SUCCESS; };
        fake.cuGetErrorString = [](CUresult, const char**) { return CUDA_SUCCESS; };
        fake.cuCtxPushCurrent = [](CUcontext) { return CUDA_SUCCESS; };
        fake.cuCtxPopCurrent = [](CUcontext*) { return CUDA_SUCCESS; };
        fake.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
        fake.cuEventCreate = [](CUevent* event, unsigned) {
            static char place;
            if (created == CUDA_SUCCESS) *event = reinterpret_cast<CUevent>(&place);
            return created;
        };
        fake.cuEventRecord = [](CUevent, CUstream) { return recorded; };
        fake.cuEventDestroy = [](CUevent) {
            calls.emplace_back("destroy the event");
            return CUDA_SUCCESS;
        };
        fake.cuEventSynchronize = [](CUevent) {
            calls.emplace_back("wait for the event");
            return CUDA_SUCCESS;
        };
        fake.cuStreamSynchronize = [](CUstream) {
            calls.emplace_back("wait for the stream");
            return CUDA_SUCCESS;
        };
        return fake;
    }();
    return kDriver;
}

}  // namespace shared_tensor::tensor

namespace {

/// What the driver is asked for at the end of an imported tensor.
std::vector<std::string> end_of_use(CUresult creation, CUresult record) {
    calls.clear();
    created = creation;
    recorded = record;
    {
        shared_tensor::tensor::CudaUse use(0, nullptr);
        use.end();
        use.finish();
    }
    return calls;
}

using Calls = std::vector<std::string>;

}  // namespace

TEST_CASE("The end of an imported tensor waits for the work that was on the default stream", "[devices]") {
    CHECK(end_of_use(CUDA_SUCCESS, CUDA_SUCCESS) == Calls{"wait for the event", "destroy the event"});
}

TEST_CASE("Without an event the end of an imported tensor waits for the whole stream", "[devices]") {
    CHECK(end_of_use(CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS) == Calls{"wait for the stream"});
    CHECK(end_of_use(CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE) == Calls{"destroy the event", "wait for the stream"});
}
