#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes/digest.hpp"
#include "base/memory/memory_block.hpp"
#include "net/message/fields.hpp"
#include "net/server/server.hpp"
#include "runtime/tables/upload_table.hpp"
#include "server/services.hpp"
#include "tensor/files/tensor_file.hpp"

// /tensors/: tensors as files over HTTP. Thread safety: all functions from any thread. Paths begin with kTensorPrefix.
// An error response has a JSON-RPC error as its body.

namespace shared_tensor::server {

inline constexpr std::string_view kTensorPrefix = "/tensors/";

/// The media type of a form, for Content-Type and Accept.
const char* media_type_of(tensor::FileForm form);
std::optional<tensor::FileForm> form_of_type(std::string_view media_type);

/// Answers GET and HEAD of /tensors/NAME, /tensors/SET/MEMBER and /tensors/LEASE: sends tensors that are in the server
/// as a file, whole or in ranges, from the tensor's own memory. A whole file that is compressed is written to
/// `response_stream` while it is compressed. If a digest is wanted, the caller blocks while the bytes are read.
/// Answers POST as swarm_step().
net::Response get_file(Services& all, const net::Request& request, const Principal& principal,
                       net::ResponseStream& response_stream);

/// The longest body of a POST.
inline constexpr std::size_t kMaxSwarmReport = std::size_t{64} << 10;
/// A file that several receivers fetch together.
struct SwarmFile {
    std::string identity;  ///< of the version and the form
    std::uint64_t size = 0;
    std::function<std::string(net::ByteRange)> sha256, xxh3;  ///< of a part, in hexadecimal; may block
};
/// Answers a receiver that says what it has and asks what to fetch next. Throws Rejected.
net::Response swarm_step(Services& all, const net::Request& request, const SwarmFile& file);

// PUT of /tensors/NAME publishes a file under a name. The file is sent whole, or in parts (Content-Range) in any order
// and several at once. Readers see it when it is complete. HEAD and DELETE with ?upload report which parts are missing,
// and abandon the upload. put_file() blocks while a part is copied and its digest is computed. These functions throw
// Rejected, except reject_put().

/// Returns the error for a PUT that must be rejected whatever its body holds. Called before the body is read.
std::optional<net::Response> reject_put(Services& all, const net::RequestHead& head, const Principal& principal);
/// The upload of a part does not expire while the result lives. Null if the request, which was not rejected, has the
/// whole file.
std::shared_ptr<const void> part_begins(Services& all, const net::RequestHead& head, const Principal& principal);
net::Response put_file(Services& all, const net::Request& request, const Principal& principal);
net::Response upload_state(Services& all, const net::RequestHead& head, const Principal& principal);
net::Response abandon_upload(Services& all, const net::RequestHead& head, const Principal& principal);

/// Ends the span of a request about a file that was served. The request has a head.
void trace_file(SpanSink& spans, const net::ServedRequest& request, std::string_view principal) noexcept;

/// A parsed request about an upload.
struct UploadRequest {
    runtime::UploadTable::Key key;
    runtime::UploadTable::Payer payer{};
    std::optional<tensor::FileForm> file_form;  ///< none: neither the name nor Content-Type names one
    runtime::WantedVersion version;
    bool changes = false;  ///< the file has the members of a set that differ from version.if_version
    bool is_set = false;   ///< also if its only member has the name of the upload
    runtime::UploadForm form;
    net::ByteRange part;
    bool is_whole = false;
    tensor::RawForm raw;
};

/// Whether HEAD or DELETE is about an upload and not about the tensor. False if the query is invalid.
bool is_about_upload(const net::RequestHead& head);
/// Parses the path and the query of a request. Throws Rejected if one of them is invalid.
UploadRequest parse_upload_request(const net::RequestHead& head, const Principal& principal);
/// Parses the whole head of a PUT whose body has `bytes` bytes. Throws Rejected if it is invalid.
UploadRequest parse_put(const net::RequestHead& head, const Principal& principal, std::uint64_t bytes);

// What readers need who have an earlier version of a file.

/// The blocks by which an earlier version is recognised.
inline constexpr std::uint64_t kBaseBlock = std::uint64_t{64} << 10;

/// The digests of the elements of each tensor, in blocks of `block` bytes, 16 bytes each, one after the other. Blocks
/// while it reads all bytes. Throws DeviceRejected, std::bad_alloc.
std::string digests_of(const tensor::TensorFile& file, std::uint64_t block);

/// A range of `file` as its difference from `base`: the digest of the range (16 bytes), then a zstd frame of the bytes
/// of both files XORed. Nullopt if that is not smaller, or if the range is longer than 4 MiB or contains a part of the
/// header, or if the tensors of the files differ in number or size or are not contiguous in host memory. Throws
/// std::bad_alloc.
std::optional<std::vector<BodyPart>> delta_of(const tensor::TensorFile& file, const tensor::TensorFile& base,
                                              const net::ByteRange& range);

}  // namespace shared_tensor::server
