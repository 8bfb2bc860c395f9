#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "base/system/fork.hpp"
#include "protocol/codec/value.hpp"

namespace shared_tensor::client {

/// The handles of objects that a client received. A handle is released when the last copy of its Object is destroyed. A
/// background thread releases handles, many in one request. Thread safety: all methods from any thread.
class Objects : public std::enable_shared_from_this<Objects> {
public:
    /// Asks the server to release handles. May block. If it throws, the handles end with their session. Its captures
    /// live as long as any Object.
    using Release = std::function<void(const std::vector<std::string>& ids)>;
    explicit Objects(Release release) : release_(std::move(release)) {}

    ObjectPointer adopt(std::string id, std::string type);

private:
    struct State {
        std::vector<std::string> waiting;
        bool telling = false;  ///< tell() is scheduled
    };
    void release_later(std::string id) noexcept;
    void tell() noexcept;

    const ProcessMark process_;  ///< a forked child has copies of the handles, and must not release them
    const Release release_;
    Guarded<State> state_;
};

/// Returns the handles of the client that received an answer; null if the client is gone.
using ObjectsOf = std::function<std::shared_ptr<Objects>()>;

/// Reads the handles in an answer. The first read of a handle adopts it. Later reads return the same Object.
class AnsweredObjects final : public codec::References {
public:
    explicit AnsweredObjects(ObjectsOf objects) : objects_(std::move(objects)) {}
    std::shared_ptr<const codec::Value> value(const codec::Json& name) override;
    ObjectPointer object(const codec::Json& handle) override;

private:
    const ObjectsOf objects_;
    std::vector<ObjectPointer> known_;
};

}  // namespace shared_tensor::client
