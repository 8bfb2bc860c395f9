#include "server/upload_endpoint.hpp"

#include <exception>
#include <new>
#include <optional>
#include <system_error>
#include <utility>
#include <variant>

#include <shared_tensor/value.hpp>

#include "http/byte_range.hpp"
#include "http/digest_field.hpp"
#include "http/text.hpp"
#include "json_rpc/error.hpp"
#include "json_rpc/json_text.hpp"
#include "server/refused.hpp"
#include "server/reply.hpp"
#include "server/tensor_endpoint.hpp"
#include "tensor/npy_header.hpp"
#include "tensor/tensor_file.hpp"

namespace shared_tensor::server {

using json_rpc::Json;
using service::TensorStore;
using tensor::FileForm;

namespace {

/// The form that a Content-Type names.
std::optional<FileForm> form_of_type(const http::RequestHead& head) {
    const auto field = head.headers.find("Content-Type");
    if (!field) return std::nullopt;
    const std::string_view type = http::trim(field->substr(0, field->find(';')));
    for (const FileForm form : {FileForm::safetensors, FileForm::npy, FileForm::raw}) {
        if (http::same_token(type, media_type_of(form))) return form;
    }
    return std::nullopt;
}

tensor::RawForm raw_form(const http::Headers& headers) {
    const auto dtype = headers.find("Shared-Tensor-Dtype"), shape = headers.find("Shared-Tensor-Shape");
    const auto known = dtype ? tensor::parse_dtype(*dtype) : std::nullopt;
    if (!known) refuse("Shared-Tensor-Dtype", "the dtype of the elements, such as float32", dtype.value_or("nothing"));
    constexpr const char* kShape = "the sizes of the tensor, such as [2,3]";
    tensor::RawForm raw{*known, {}};
    const Json sizes = Json::parse(shape.value_or(""), nullptr, false);
    if (!sizes.is_array() || sizes.size() > tensor::kMaxRank)
        refuse("Shared-Tensor-Shape", kShape, shape.value_or("nothing"));
    for (const Json& size : sizes) {
        if (!size.is_number_unsigned() || size.get<std::uint64_t>() > std::uint64_t{1} << 62)
            refuse("Shared-Tensor-Shape", kShape, *shape);
        raw.shape.push_back(size.get<std::int64_t>());
    }
    return raw;
}

std::optional<Digest::Value> digest_in(const http::Headers& headers, const char* name) {
    const auto field = http::parse_digest_field(headers.find(name));
    if (field.is_there && !field.value) refuse(name, "xxh3-128=:BASE64 of 16 bytes:", "another value");
    return field.value;
}

Json gaps(const std::vector<NumberRange>& missing) {
    Json list = Json::array();
    for (const auto& [first, end] : missing)
        list.push_back({first, end - 1});
    return list;
}

std::string gaps_text(const std::vector<NumberRange>& missing) {
    std::string text;
    for (const auto& [first, end] : missing)
        text.append(text.empty() ? "" : ", ").append(std::to_string(first)).append("-").append(std::to_string(end - 1));
    return text;
}

http::Response json_answer(int status, const Json& json) {
    std::string text;
    json_rpc::print_json(json, text);
    return http::Response::json(status, std::move(text));
}

http::Response store_refusal(const TensorStore::Refused& refused, std::optional<std::uint64_t> if_version) {
    if (!refused.conflict) return refusal(507, json_rpc::out_of_memory(refused.reason));
    return refusal(412, json_rpc::invalid_params("if_version", std::to_string(refused.version),
                                                 std::to_string(if_version.value_or(0))));
}

void check_members(const tensor::TensorSet& set, std::size_t most) {
    if (set.manifest.size() > most)
        refuse("body", "at most " + std::to_string(most) + " members", std::to_string(set.manifest.size()));
    for (const auto& [name, member] : set.manifest) {
        if (const std::string fault = service::member_name_fault(name); !fault.empty())
            refuse("body", "names for members", fault);
    }
}

/// A file with one tensor of that very name, as it is got, is that tensor.
void single_out(tensor::FileContent& content, const std::string& name) {
    if (content.tensor != nullptr || content.set.manifest.size() != 1) return;
    const auto& [member, place] = *content.set.manifest.begin();
    if (member == name) content.tensor = tensor::member_of(content.set, place);
}

}  // namespace

struct UploadEndpoint::Wanted {
    Uploads::Key key;
    std::optional<FileForm> form;  ///< none: neither name nor type tell it
    std::optional<std::uint64_t> if_version;
    tensor::RawForm raw;
};

bool UploadEndpoint::is_about_upload(const http::RequestHead& head) {
    const auto parameters = http::parse_query(head.query);
    if (!parameters) return false;
    for (const auto& [name, value] : *parameters) {
        if (name == "upload") return true;
    }
    return false;
}

UploadEndpoint::Wanted UploadEndpoint::parse(const http::RequestHead& head, const Principal& principal) {
    constexpr std::size_t kLongestId = 128;
    Wanted wanted;
    std::string_view name = std::string_view(head.path).substr(TensorEndpoint::kPrefix.size());
    wanted.form = tensor::form_of_name(name);
    if (wanted.form) {
        name.remove_suffix(tensor::suffix_of(*wanted.form).size());
    } else {
        wanted.form = form_of_type(head);
    }
    if (const std::string fault = service::tensor_name_fault(std::string(name)); !fault.empty())
        refuse("name", "another name", fault);
    wanted.key = {principal.name, std::string(name), {}};
    const auto parameters = http::parse_query(head.query);
    if (!parameters) refuse("query", "name=value with %XX", "something else");
    for (const auto& [parameter, value] : *parameters) {
        if (parameter == "upload") {
            if (value.size() > kLongestId) refuse("upload", "at most 128 bytes", std::to_string(value.size()));
            wanted.key.id = value;
        } else if (parameter == "if_version") {
            wanted.if_version = http::parse_decimal(value);
            if (!wanted.if_version) refuse("if_version", "a number", value);
        } else {
            refuse(parameter, "upload or if_version", "another parameter");
        }
    }
    return wanted;
}

http::Response UploadEndpoint::unknown() const { return refusal(404, json_rpc::unknown_or_expired("upload", epoch_)); }

http::Response UploadEndpoint::put(const http::Request& request, const Principal& principal) const try {
    const http::Headers& headers = request.head.headers;
    Wanted wanted = parse(request.head, principal);
    if (!wanted.form)
        return refusal(415, json_rpc::invalid_params("Content-Type",
                                                     "a name that ends in .safetensors, .npy or .raw, or "
                                                     "application/vnd.safetensors, application/x-npy, "
                                                     "application/octet-stream",
                                                     headers.find("Content-Type").value_or("nothing")));
    const auto bytes = request.body != nullptr ? request.body->bytes() : std::span<const std::byte>();
    http::ContentRange range{{0, bytes.size()}, bytes.size()};
    if (const auto field = headers.find("Content-Range")) {
        const auto read = http::parse_content_range(*field);
        if (!read || !read->size || read->part.count != bytes.size())
            refuse("Content-Range",
                   "bytes FIRST-LAST/SIZE, as many as the body has (" + std::to_string(bytes.size()) + ")", *field);
        range = *read;
    }
    const bool is_whole = range.part.count == *range.size && wanted.key.id.empty();  // it takes part in no other upload
    UploadForm form{std::string(tensor::suffix_of(*wanted.form)), *range.size};
    if (*wanted.form == FileForm::raw) {
        wanted.raw = raw_form(headers);
        form.form.append(tensor::name_of(wanted.raw.dtype));
        for (const std::int64_t size : wanted.raw.shape)
            form.form.append(",").append(std::to_string(size));
    }
    if (const auto digest = digest_in(headers, "Content-Digest"); digest && *digest != Digest::of(bytes))
        refuse("Content-Digest", http::digest_field(Digest::of(bytes)) + ", that of the bytes that came",
               http::digest_field(*digest));
    const auto whole_digest = digest_in(headers, "Repr-Digest");

    if (names_->store().closed()) return refusal(503, json_rpc::shutting_down());
    if (auto refused = names_->store().refusal(principal.name, wanted.key.name, form.size, wanted.if_version))
        return store_refusal(*refused, wanted.if_version);
    const auto memory = names_->block_for(principal.name);
    auto opened = is_whole ? uploads_->make(form, memory) : uploads_->open(wanted.key, form, memory);
    if (const auto* done = std::get_if<Uploads::Done>(&opened))  // a part that came twice
        return json_answer(200, {{"name", wanted.key.name}, {"version", done->version}, {"bytes", done->size}});
    if (const auto* full = std::get_if<Uploads::Full>(&opened)) {
        if (full->for_ever)
            return refusal(413, json_rpc::invalid_params("Content-Range", full->reason, std::to_string(form.size)));
        http::Response busy = refusal(503, json_rpc::busy(std::chrono::seconds(1)));
        busy.headers.add("Retry-After", "1");
        return busy;
    }
    const auto upload = std::get<std::shared_ptr<Upload>>(opened);
    if (upload->form() != form)
        return refusal(
            409, json_rpc::invalid_params("Content-Range",
                                          "a part of the upload that is under way (" + upload->form().form + ", " +
                                              std::to_string(upload->form().size) + " bytes), or another ?upload=ID",
                                          form.form + ", " + std::to_string(form.size) + " bytes"));
    if (whole_digest && !upload->expect(*whole_digest))
        refuse("Repr-Digest", http::digest_field(*upload->expected()) + ", as another part said",
               http::digest_field(*whole_digest));
    if (!upload->take(range.part.first, bytes, uploads_->now())) return answer_part(wanted.key, *upload);
    try {
        return publish(wanted, *upload);
    } catch (...) {
        uploads_->remove(wanted.key, upload.get());
        throw;
    }
} catch (const Refused& refused) {
    return refusal(refused.status, refused.error);
} catch (const tensor::SafetensorsError& error) {
    return refusal(400, json_rpc::invalid_params("body", "a safetensors file", error.what()));
} catch (const tensor::NpyError& error) {
    return refusal(400, json_rpc::invalid_params("body", "a .npy file", error.what()));
} catch (const InvalidValue& error) {
    return refusal(400, json_rpc::invalid_params(error.path, error.expected, error.got));
} catch (const std::bad_alloc&) {
    return refusal(507, json_rpc::out_of_memory("there is no memory for the file: remove tensors, or come back later"));
} catch (const std::system_error& error) {
    return refusal(507,
                   json_rpc::out_of_memory(std::string("there is no shared memory for the file: ") + error.what()));
}

http::Response UploadEndpoint::answer_part(const Uploads::Key& key, const Upload& upload) const {
    const auto progress = upload.progress();
    return json_answer(202, {{"name", key.name},
                             {"size", upload.form().size},
                             {"received", progress.received},
                             {"missing", gaps(progress.missing)}});
}

http::Response UploadEndpoint::publish(const Wanted& wanted, const Upload& upload) const {
    const std::uint64_t size = upload.form().size;
    if (const auto digest = upload.expected()) {
        const auto real = Digest::of({upload.block().data, static_cast<std::size_t>(size)});
        if (real != *digest)
            refuse("Repr-Digest", http::digest_field(real) + ", that of the bytes that came",
                   http::digest_field(*digest));
    }
    tensor::FileContent content = tensor::view_file(upload.block(), size, *wanted.form, wanted.raw);
    check_members(content.set, names_->max_members());
    single_out(content, wanted.key.name);
    auto placed = names_->adopt(wanted.key.owner, std::move(content));
    auto made = names_->store().put(wanted.key.owner, wanted.key.name, std::move(placed.value), wanted.if_version);
    if (const auto* refused = std::get_if<TensorStore::Refused>(&made)) {
        uploads_->remove(wanted.key, &upload);
        return store_refusal(*refused, wanted.if_version);
    }
    const std::uint64_t version = std::get<service::NamedPointer>(made)->version;
    uploads_->finish(wanted.key, upload, version);
    return json_answer(200, {{"name", wanted.key.name}, {"version", version}, {"bytes", size}});
}

http::Response UploadEndpoint::state(const http::RequestHead& head, const Principal& principal) const try {
    const auto found = uploads_->find(parse(head, principal).key);
    http::Response response;
    if (const auto* done = std::get_if<Uploads::Done>(&found)) {
        response.headers.add("Shared-Tensor-Upload", std::to_string(done->size) + "/" + std::to_string(done->size));
        response.headers.add("Shared-Tensor-Version", std::to_string(done->version));
        return response;
    }
    const auto* upload = std::get_if<std::shared_ptr<Upload>>(&found);
    if (upload == nullptr) return unknown();
    const auto progress = (*upload)->progress();
    response.headers.add("Shared-Tensor-Upload",
                         std::to_string(progress.received) + "/" + std::to_string((*upload)->form().size));
    response.headers.add("Shared-Tensor-Missing", gaps_text(progress.missing));
    return response;
} catch (const Refused& refused) {
    return refusal(refused.status, refused.error);
}

http::Response UploadEndpoint::abandon(const http::RequestHead& head, const Principal& principal) const try {
    if (!uploads_->remove(parse(head, principal).key)) return unknown();
    http::Response response;
    response.status = 204;
    return response;
} catch (const Refused& refused) {
    return refusal(refused.status, refused.error);
}

}  // namespace shared_tensor::server
