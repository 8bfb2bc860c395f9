#pragma once

#include <cstddef>

namespace shared_tensor::local {

/// How to ask the kernel about pages.
enum class PageTable {
    scanned,  ///< ioctl PAGEMAP_SCAN, since Linux 6.7: returns only the pages asked for
    read      ///< /proc/self/pagemap: one entry for each page
};

/// The better method available here; PageTable::read if there is none (no /proc).
PageTable best_page_table();

/// For a private mapping of a file: drops the written pages, and only those. The file's bytes are visible again, and
/// the other pages stay mapped. Drops all pages if the page table cannot be read.
/// `data` is page-aligned and `bytes` a multiple of the page size. No thread may use the pages meanwhile.
/// Takes about 2 us per MiB that was touched.
void drop_written_pages(std::byte* data, std::size_t bytes, PageTable how);

/// Like drop_written_pages(), but only if that takes a few us because little was touched. Else false: written pages may
/// still be there.
bool drop_written_pages_if_few(std::byte* data, std::size_t bytes, PageTable how);

/// For a private mapping of a file: gives this process its own copy, in place, of each page that contains the bytes.
/// Later writes to the file are not visible there. Other threads may read and write the bytes meanwhile. Takes as long
/// as a copy into new memory. Throws std::bad_alloc.
void own_pages(std::byte* data, std::size_t bytes);

/// Like own_pages(), page by page, for kernels before 5.14.
void own_pages_by_touch(std::byte* data, std::size_t bytes);

}  // namespace shared_tensor::local
