#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/model.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::models {

/// The module of one session, and its turn. The lock is held while the model runs, against the house's rule: the turn
/// is what it is there for, and the dispatcher has made it free already.
/// Shared by the session or the handles that it belongs to, and by calls.
struct Instance {
    Instance(torch::jit::Module fresh, std::shared_ptr<const void> whose)
        : module(std::move(fresh)), kin(std::move(whose)) {}
    std::mutex turn;
    torch::jit::Module module;
    const std::shared_ptr<const void> kin;  ///< that of the Instances which made it, and of no others
};

/// The instances of a model. Thread safety: all methods from any thread; none waits for a running model.
class Instances {
public:
    /// `loaded` is never run unless the state is none.
    Instances(torch::jit::Module loaded, LoadOptions options, SessionIsOpen is_open);

    /// That of the session; a fresh one for an empty session. Throws std::runtime_error beyond max_instances.
    std::shared_ptr<Instance> find_or_make(std::string_view session);
    void erase(std::string_view session);
    /// One that belongs to no session.
    std::shared_ptr<Instance> make() const;
    /// Whether it is one of this model, and not of another one that was loaded by its name before.
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

    torch::jit::Module fresh() const;
    std::shared_ptr<Instance> find(std::string_view session);
    std::shared_ptr<Instance> keep(std::string_view session, std::shared_ptr<Instance> made);

    torch::jit::Module loaded_;
    LoadOptions options_;
    SessionIsOpen is_open_;
    std::shared_ptr<const void> kin_ = std::make_shared<char>();
    std::vector<at::Tensor> common_;  // tensors that all instances share
    Guarded<Map> sessions_;
};

}  // namespace shared_tensor::models
