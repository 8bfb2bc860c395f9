#include "server/files/files.hpp"

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "net/message/text.hpp"
#include "protocol/json_rpc/error.hpp"
#include "runtime/tables/tensor_store.hpp"
#include "server/methods/rejected.hpp"
#include "tensor/layout.hpp"

namespace shared_tensor::server {

using json_rpc::Json;
using tensor::FileForm;

namespace {

tensor::RawForm raw_form(const net::Headers& headers, std::uint64_t size) {
    const auto dtype = headers.find("Shared-Tensor-Dtype"), shape = headers.find("Shared-Tensor-Shape");
    const auto known = dtype ? tensor::parse_dtype(*dtype) : std::nullopt;
    if (!known) reject("Shared-Tensor-Dtype", "the dtype of the elements, such as float32", dtype.value_or("nothing"));
    constexpr const char* kShape = "the sizes of the tensor, such as [2,3]";
    tensor::RawForm raw{*known, {}};
    const Json sizes = Json::parse(shape.value_or(""), nullptr, false);
    if (!sizes.is_array() || sizes.size() > tensor::kMaxRank)
        reject("Shared-Tensor-Shape", kShape, shape.value_or("nothing"));
    for (const Json& one : sizes) {
        if (!one.is_number_unsigned() || one.get<std::uint64_t>() > std::uint64_t{1} << 62)
            reject("Shared-Tensor-Shape", kShape, *shape);
        raw.shape.push_back(one.get<std::int64_t>());
    }
    const auto extent = tensor::extent_of(raw.shape, {}, tensor::size_of(raw.dtype));
    if (!extent || extent->bytes != size)
        reject("Shared-Tensor-Shape", "one of " + std::to_string(size) + " bytes, as the file has",
               extent ? std::to_string(extent->bytes) + " bytes" : "more than can be counted");
    return raw;
}

}  // namespace

bool is_about_upload(const net::RequestHead& head) {
    const auto parameters = net::parse_query(head.query);
    if (!parameters) return false;
    for (const auto& [name, value] : *parameters) {
        if (name == "upload") return true;
    }
    return false;
}

UploadRequest parse_upload_request(const net::RequestHead& head, const Principal& principal) {
    constexpr std::size_t kLongestId = 128;
    UploadRequest wanted;
    std::string_view name = std::string_view(head.path).substr(kTensorPrefix.size());
    wanted.file_form = tensor::form_of_name(name);
    if (wanted.file_form) {
        name.remove_suffix(tensor::suffix_of(*wanted.file_form).size());
    } else {
        wanted.file_form = form_of_type(without_parameters(head.headers.find("Content-Type").value_or("")));
    }
    if (const std::string rejection = runtime::tensor_name_rejection(std::string(name)); !rejection.empty())
        reject("name", "another name", rejection);
    wanted.key = {principal.name, std::string(name), {}};
    wanted.payer = {principal.payer(), principal.admin};
    const auto parameters = net::parse_query(head.query);
    if (!parameters) reject("query", "name=value with %XX, each name once", "something else");
    for (const auto& [parameter, value] : *parameters) {
        if (parameter == "upload") {
            if (value.size() > kLongestId) reject("upload", "at most 128 bytes", std::to_string(value.size()));
            wanted.key.id = value;
        } else if (parameter == "if_version" || parameter == "base") {
            if (wanted.version.if_version) reject(parameter, "one of if_version and base, once", "both");
            wanted.version.if_version = net::parse_decimal(value);
            if (!wanted.version.if_version) reject(parameter, "a number", value);
            wanted.changes = parameter == "base";
        } else if (parameter == "version") {
            wanted.version.version = net::parse_decimal(value);
            if (!wanted.version.version || *wanted.version.version > runtime::kHighestVersion)
                reject(parameter, "a number up to " + std::to_string(runtime::kHighestVersion), value);
        } else if (parameter == "as") {
            if (value != "set") reject(parameter, "set", value);
            wanted.is_set = true;
        } else {
            reject_parameter(parameter, "upload, if_version, base, version, as");
        }
    }
    return wanted;
}

UploadRequest parse_put(const net::RequestHead& head, const Principal& principal, std::uint64_t bytes) {
    const net::Headers& headers = head.headers;
    UploadRequest wanted = parse_upload_request(head, principal);
    if (!wanted.file_form)
        throw Rejected(json_rpc::invalid_params("Content-Type",
                                                "a name that ends in .safetensors, .npy or .raw, or "
                                                "application/vnd.safetensors, application/x-npy, "
                                                "application/octet-stream",
                                                headers.find("Content-Type").value_or("nothing")),
                       415);
    if (wanted.changes && *wanted.file_form != FileForm::safetensors)
        reject("base", "a safetensors file of the members that changed", std::string(suffix_of(*wanted.file_form)));
    if (wanted.is_set && *wanted.file_form != FileForm::safetensors)
        reject("as", "a safetensors file, for a set", std::string(suffix_of(*wanted.file_form)));
    if (const auto condition = headers.find("If-None-Match")) {
        if (net::trim(*condition) != "*") reject("If-None-Match", "*, or ?if_version=N", *condition);
        wanted.version.if_version = 0;
    }
    if (const auto condition = headers.find("If-Match")) reject("If-Match", "?if_version=N in its place", *condition);
    if (headers.find("Idempotency-Key"))
        reject("Idempotency-Key", "?upload=ID in its place, which makes a repeated request harmless", "a key");
    wanted.part = {0, bytes};
    wanted.form = {std::string(tensor::suffix_of(*wanted.file_form)), bytes};
    wanted.is_whole = true;
    if (const auto field = headers.find("Content-Range")) {
        const auto range = net::parse_content_range(*field);
        if (!range || !range->size || range->part.count != bytes || (bytes == 0 && *range->size > 0))
            reject("Content-Range", "bytes FIRST-LAST/SIZE, as many as the body has (" + std::to_string(bytes) + ")",
                   *field);
        wanted.part = range->part;
        wanted.form.size = *range->size;
        wanted.is_whole = bytes == *range->size;
    }
    if (*wanted.file_form == FileForm::raw) {
        wanted.raw = raw_form(headers, wanted.form.size);
        wanted.form.form.append(tensor::name_of(wanted.raw.dtype));
        for (const std::int64_t size : wanted.raw.shape)
            wanted.form.form.append(",").append(std::to_string(size));
    }
    return wanted;
}

}  // namespace shared_tensor::server
