#include "tensor/device/lent_blocks.hpp"

#include <catch2/catch_test_macros.hpp>

#include "support/daemon.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;

namespace {

/// A block of memory that was lent, and whether it is still there.
struct Lent {
    Exports exports;
    std::shared_ptr<const LentBlock> block =
        std::make_shared<const LentBlock>(zeros(DType::float32, {4}), IpcBytes{}, DevicePlace{}, nullptr, exports);
    std::weak_ptr<const LentBlock> seen = block;
};

std::shared_ptr<const UniqueFd> this_process() { return watch_process(::getpid()); }

}  // namespace

TEST_CASE("a block is kept until its reader has closed it", "[devices]") {
    Lent one, other;
    DeferredFrees deferred_frees;
    const LentBlock* first = one.block.get();
    deferred_frees.keep(std::move(one.block), this_process());
    deferred_frees.keep(std::move(other.block), this_process());
    deferred_frees.sweep();
    CHECK(deferred_frees.use().blocks == 2);
    CHECK(deferred_frees.use().bytes == 32);
    deferred_frees.free(first);
    CHECK(one.seen.expired());
    CHECK_FALSE(other.seen.expired());
    CHECK(deferred_frees.use().blocks == 1);
}

TEST_CASE("a block that was closed while its lease ended is not kept", "[devices]") {
    Lent lent;
    DeferredFrees deferred_frees;
    deferred_frees.free(lent.block.get());
    deferred_frees.keep(std::move(lent.block), this_process());
    CHECK(lent.seen.expired());
    CHECK(deferred_frees.use().blocks == 0);
}

TEST_CASE("a block is kept until its reader's process has ended", "[devices]") {
    TemporaryFolder folder;
    Child reader({"/bin/sleep", "60"}, {}, folder.file("out"), folder.file("err"));
    Lent lent;
    DeferredFrees deferred_frees;
    deferred_frees.keep(std::move(lent.block), watch_process(reader.pid()));
    deferred_frees.sweep();
    CHECK_FALSE(lent.seen.expired());
    reader.signal(SIGKILL);
    reader.wait();
    deferred_frees.sweep();
    CHECK(lent.seen.expired());
}

TEST_CASE("a block whose reader cannot be watched is kept", "[devices]") {
    Lent lent;
    DeferredFrees deferred_frees;
    deferred_frees.keep(std::move(lent.block), nullptr);
    deferred_frees.sweep();
    CHECK_FALSE(lent.seen.expired());
}
