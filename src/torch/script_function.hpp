#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <string>
#include <vector>

#include <shared_tensor/function.hpp>

#include "torch/instances.hpp"

namespace shared_tensor::models {

/// An instance of that model, with a state of its own, as an object of the server.
ObjectPointer as_object(const std::string& model, const Instances& instances);

/// Why a method can't be shared, empty if it can.
std::string obstacle(const c10::FunctionSchema& schema);

/// One method of a model. `schema` has no obstacle. Its last parameter is `instance`, which may be left out; a method
/// that has one of that name itself gets none.
class ScriptFunction final : public SharedFunction {
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
    std::string object_type_;         // of its model's instances
    std::size_t own_parameters_ = 0;  // of the method; one more may name an instance
    FunctionOptions options_;
    std::vector<ParameterInfo> parameters_;
    std::shared_ptr<Instances> instances_;  // with the functions of all methods; holds the code of the module too
    torch::jit::Function* method_;
};

}  // namespace shared_tensor::models
