#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "protocol/codec/value.hpp"
#include "support/daemon.hpp"
#include "tensor/device/device_peer.hpp"

namespace shared_tensor::test {

/// A peer that agrees to everything and counts. The counts outlive it: the thread of the IPC handle cache tells the end
/// of a use while its block lingers, later than the end of a test.
class AnyPeer final : public tensor::DevicePeer {
public:
    tensor::Viability viable() const override { return {}; }
    bool sees(const std::string&) const override { return true; }
    std::uint64_t owner() const override { return 1; }
    std::function<void()> use(const std::string&) override {
        ++counts->used;
        return [counts = counts] { ++counts->done; };
    }
    Lent lend(std::shared_ptr<const tensor::LentBlock> block) override {
        lent.push_back(std::move(block));
        return {"l-" + std::to_string(lent.size()), nullptr};
    }

    struct Counts {
        std::atomic<int> used{0}, done{0};
    };
    const std::shared_ptr<Counts> counts = std::make_shared<Counts>();
    std::vector<std::shared_ptr<const tensor::LentBlock>> lent;
};

/// This binary again, in another process: exports one tensor, arange(1000) as float32 on a simulated device, until
/// told otherwise.
class Exporter {
public:
    Exporter();
    /// What it would have sent.
    const codec::Json& descriptor() const { return descriptor_; }
    /// It frees the tensor and allocates others.
    void free();
    Child& child() { return *child_; }

private:
    TemporaryFolder folder_;
    std::string ready_, freed_, out_, err_;
    std::unique_ptr<Child> child_;
    codec::Json descriptor_;
};

}  // namespace shared_tensor::test
