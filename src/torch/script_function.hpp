#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <string>
#include <vector>

#include <shared_tensor/function.hpp>

#include "torch/instances.hpp"

namespace shared_tensor::models {

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
