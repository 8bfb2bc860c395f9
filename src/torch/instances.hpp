#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "runtime/models/model.hpp"

namespace shared_tensor::models {

/// The module of one session, and the mutex that calls take in turn. The mutex is held while the model runs, against
/// the house rule: that is its purpose, and the dispatcher starts no two calls of a session at once.
/// Shared by its session or its handles, and by calls.
struct Instance {
    Instance(torch::jit::Module fresh, std::shared_ptr<const void> whose)
        : module(std::move(fresh)), kin(std::move(whose)) {}
    std::mutex turn;
    torch::jit::Module module;
    const std::shared_ptr<const void> kin;  ///< identifies the Instances object that made it
};

/// The instances of a model. Thread safety: all methods from any thread; no method waits for a running model.
class Instances {
public:
    /// `loaded` is never run, unless the state is none.
    Instances(torch::jit::Module loaded, LoadOptions options, SessionIsOpen is_open);

    /// The instance of the session; a new one if `session` is empty. Throws std::runtime_error beyond max_instances.
    std::shared_ptr<Instance> find_or_make(std::string_view session);
    void erase(std::string_view session);
    /// Makes an instance that belongs to no session.
    std::shared_ptr<Instance> make() const;
    /// Whether this object made the instance, rather than an earlier model of the same name.
    bool made(const Instance& instance) const { return instance.kin == kin_; }
    std::size_t size() const;
    bool stateless() const { return options_.state == State::none; }
    torch::jit::Module& loaded() { return loaded_; }
    const LoadOptions& options() const { return options_; }

private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
    };
    using Map = std::unordered_map<std::string, std::shared_ptr<Instance>, Hash, std::equal_to<>>;

    torch::jit::Module loaded_;
    LoadOptions options_;
    SessionIsOpen is_open_;
    std::shared_ptr<const void> kin_ = std::make_shared<char>();
    std::vector<at::Tensor> common_;  // tensors that all instances share
    Guarded<Map> sessions_;
};

}  // namespace shared_tensor::models
