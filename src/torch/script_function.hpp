#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <shared_tensor/function.hpp>

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

/// Makes an instance of the model, with its own state, as an object of the server.
ObjectPointer as_object(const std::string& model, const Instances& instances);

/// Why a method cannot be shared; empty if it can.
std::string rejection(const c10::FunctionSchema& schema);

/// One method of a model; rejection() of its schema must be empty. Has an additional optional last parameter
/// `instance`, unless the method itself has a parameter of that name.
class ScriptFunction final : public FunctionRecord {
public:
    ScriptFunction(const std::string& model, torch::jit::Function& method, std::shared_ptr<Instances> instances);

    std::string_view name() const override { return name_; }
    const FunctionOptions& options() const override { return options_; }
    std::string where() const override { return where_; }
    std::span<const ParameterInfo> parameters() const override { return parameters_; }
    void parameter_schema(std::size_t index, ValueWriter schema) const override;
    void default_value(std::size_t index, ValueWriter value) const override;
    void result_schema(ValueWriter schema) const override;
    Binding bind(const ValueSource& source, std::span<const ValueSource::Node> arguments) const noexcept override;

private:
    class Bound;
    c10::IValue read_argument(std::size_t index, const ValueSource& source, ValueSource::Node node) const;
    const c10::Argument& argument(std::size_t index) const;

    std::shared_ptr<Instance> read_instance(const ValueSource& source, ValueSource::Node node) const;
    bool takes_instance() const { return parameters_.size() > own_parameters_; }

    std::string name_, where_, doc_;
    std::string object_type_;         // of the model's instances
    std::size_t own_parameters_ = 0;  // parameters of the method, without `instance`
    FunctionOptions options_;
    std::vector<ParameterInfo> parameters_;
    std::shared_ptr<Instances> instances_;  // shared by the functions of all methods; also owns the module's code
    torch::jit::Function* method_;
};

}  // namespace shared_tensor::models
