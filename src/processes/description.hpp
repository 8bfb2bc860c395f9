#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/function.hpp>

#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::processes {

using Functions = std::vector<std::shared_ptr<const FunctionRecord>>;

/// Describes functions to another process, as one line of JSON: an array with an object for each function.
std::string describe(const Functions& functions);

/// A function as describe() described it.
class DescribedFunction : public FunctionRecord {
public:
    /// `described`: one object of the array. Throws json_rpc::Json::exception if a member is missing or wrong.
    explicit DescribedFunction(const json_rpc::Json& described);

    std::string_view name() const override { return name_; }
    const FunctionOptions& options() const override { return options_; }
    std::string where() const override { return where_; }
    std::span<const ParameterInfo> parameters() const override { return infos_; }
    void parameter_schema(std::size_t index, ValueWriter schema) const override;
    void default_value(std::size_t index, ValueWriter value) const override;
    void result_schema(ValueWriter schema) const override;

protected:
    const json_rpc::Json parameters_;
    FunctionOptions options_;

private:
    const std::string name_, where_;
    const json_rpc::Json result_;
    std::string doc_, version_, device_, dtype_;  // of options_
    std::vector<ParameterInfo> infos_;
};

}  // namespace shared_tensor::processes
