#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codec/references.hpp"
#include "util/guarded.hpp"
#include "util/process_mark.hpp"

namespace shared_tensor::client {

/// The handles of objects that a client was given: each is released when the last copy of its Object goes, many in one
/// request, on a thread of its own. Thread safety: all methods from any thread.
class Objects : public std::enable_shared_from_this<Objects> {
public:
    /// Asks the server to release handles; may block, must not throw. What it holds stays while there are Objects.
    using Release = std::function<void(const std::vector<std::string>& ids)>;
    explicit Objects(Release release) : release_(std::move(release)) {}

    ObjectPointer adopt(std::string id, std::string type);

private:
    struct State {
        std::vector<std::string> waiting;
        bool telling = false;  ///< it is on its way
    };
    void release_later(std::string id) noexcept;
    void tell() noexcept;

    const ProcessMark process_;  ///< one that was forked off has copies of our handles, and no say in their end
    const Release release_;
    Guarded<State> state_;
};

/// Of the client that got an answer; null when it is gone.
using ObjectsOf = std::function<std::shared_ptr<Objects>()>;

/// Reads the handles of an answer: each belongs to who reads it first, and is given back when that goes.
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
