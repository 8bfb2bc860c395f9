#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/fork.hpp"
#include "client/call/core.hpp"

namespace shared_tensor::client {

/// A batch, from its first item until its answers are read. The Batch and its items share it.
class BatchState {
public:
    BatchState(std::shared_ptr<Core> core, CallOptions options);

    std::size_t append(std::string_view method, const CallArguments& arguments, const CallOptions& options);
    void append_notification(std::string_view method, const CallArguments& arguments);
    std::size_t size() const { return request_.size(); }

    std::uint64_t id(std::size_t index) const { return items_.at(index).id; }

    /// `receipt` may be null.
    void send(Receipt* receipt = nullptr);
    void result(std::size_t index, detail::ResultSlot& slot) const;

private:
    struct Item {
        std::uint64_t id;
        std::string method;  // for error texts
    };
    void require_open() const;
    void check_process() const;

    std::shared_ptr<Core> core_;
    CallOptions options_;
    Outgoing request_;
    std::vector<Item> items_;
    const ProcessMark process_;
    bool sent_ = false;
    std::optional<Incoming> answer_;
};

}  // namespace shared_tensor::client
