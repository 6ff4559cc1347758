//! Compares the GPU code found in containers with the output of cuobjdump; also damaged and hostile
//! files.

use crate::{damage, fixture};
use rgpu_format::container::{self, ContainerError, ContainerKind, Image, ImagePath, Limits};
use rgpu_format::fatbin::{self, Compression, EntryKind, FatbinError};
use std::io::{Cursor, Write};

const FOLDER: &str = "fatbin/13.5/vecadd";

fn bytes(name: &str) -> Vec<u8> {
    fixture::bytes(&format!("{FOLDER}/{name}"))
}

/// Every image of a file, unpacked, with its place; errors as text.
fn images(data: &[u8]) -> Vec<(String, Result<Vec<u8>, String>)> {
    let mut all = Vec::new();
    container::walk(data, &Limits::default(), &mut |place: &ImagePath, image| {
        let bytes = image.map_err(|e| e.to_string()).and_then(|image: Image<'_>| {
            let bytes = image.bytes(&Limits::default()).map_err(|e| e.to_string())?;
            Ok(bytes.into_owned())
        });
        all.push((place.to_string(), bytes));
    })
    .unwrap();
    all
}

#[test]
fn every_compression_mode_unpacks_to_what_cuobjdump_extracts() {
    let modes = [
        ("none.fatbin", [Compression::None, Compression::None]),
        ("speed.fatbin", [Compression::None, Compression::Lz4]),
        ("size.fatbin", [Compression::Zstd, Compression::Zstd]),
    ];
    let truth = ["sm_80.cubin", "sm_100a.cubin", "sm_100.cubin", "sm_90.ptx"];
    for (file, [of_cubins, of_ptx]) in modes {
        let data = bytes(file);
        let fatbin = fatbin::read(&data, 0).unwrap();
        assert_eq!(fatbin.bytes, data.len());
        let sms: Vec<_> = fatbin.entries.iter().map(|e| e.sm.to_string()).collect();
        assert_eq!(sms, ["sm_80", "sm_100a", "sm_100f", "sm_90"]);
        for (entry, truth) in fatbin.entries.iter().zip(truth) {
            assert_eq!(entry.identifier.as_deref(), Some("vecadd.cu"));
            let image = entry.unpack(1 << 20).unwrap();
            if entry.compression == Compression::None {
                // The listed entries are the extracted files, without padding.
                assert_eq!(
                    (entry.stored.len(), entry.unpacked_bytes),
                    (image.len(), image.len() as u64)
                );
            }
            let truth = bytes(&format!("vecadd.{truth}"));
            if entry.kind == EntryKind::Ptx {
                assert_eq!(entry.compression, of_ptx);
                assert_eq!(entry.options.as_deref(), Some("--generate-line-info"));
                assert_eq!(entry.version, (9, 5));
                let text = |b: &[u8]| String::from_utf8_lossy(b).trim().to_owned();
                assert_eq!(text(&image), text(&truth), "{file}");
            } else {
                assert_eq!(entry.compression, of_cubins);
                assert!(*image == truth, "{file} {}", entry.sm);
            }
        }
    }
}

#[test]
fn code_is_found_in_archives_libraries_and_wheels() {
    let library = images(&bytes("libvecadd.so"));
    let places: Vec<_> = library.iter().map(|(place, _)| place.as_str()).collect();
    assert_eq!(places.len(), 4);
    assert!(places[0].starts_with(".nv_fatbin#"), "{places:?}");
    let archive = images(&bytes("libtwo.a"));
    assert_eq!(archive.len(), 5);
    assert!(archive[0].0.starts_with("vecadd.o › .nv_fatbin#"), "{}", archive[0].0);
    assert!(archive[4].0.starts_with("rdc.o › __nv_relfatbin#"), "{}", archive[4].0);
    let wheel = images(&bytes("vecadd-1.0-py3-none-any.whl"));
    assert_eq!(wheel.len(), 5);
    assert!(wheel[0].0.starts_with("vecadd/libvecadd.so › .nv_fatbin#"), "{}", wheel[0].0);
    assert_eq!(wheel[4].0, "vecadd/vecadd.ptx");
    // The library was linked from the object in the archive.
    let image = |list: &[(String, Result<Vec<u8>, String>)], n: usize| list[n].1.clone().unwrap();
    for n in 0..4 {
        assert_eq!(image(&library, n), image(&archive, n));
        assert_eq!(image(&library, n), image(&wheel, n));
    }
}

#[test]
fn a_plain_cubin_and_ptx_are_their_own_image() {
    let cubin = bytes("vecadd.sm_80.cubin");
    assert_eq!(container::kind(&cubin), Some(ContainerKind::Cubin));
    assert_eq!(images(&cubin), [(String::new(), Ok(cubin.clone()))]);
    assert_eq!(container::kind(&bytes("vecadd.sm_90.ptx")), Some(ContainerKind::Ptx));
    let unknown = container::walk(b"#include <x>\n", &Limits::default(), &mut |_, _| {});
    assert!(matches!(unknown, Err(ContainerError::UnknownFile { .. })), "{unknown:?}");
}

fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, data) in members {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(data).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

#[test]
fn hostile_member_names_are_refused_and_the_rest_is_read() {
    let cubin = bytes("vecadd.sm_80.cubin");
    let data = zip(&[("../../etc/x.cubin", &cubin), ("a\\..\\b", &cubin), ("ok.cubin", &cubin)]);
    let found = images(&data);
    assert_eq!(found.len(), 3);
    for refused in &found[..2] {
        assert!(refused.1.as_ref().unwrap_err().contains("refused"), "{refused:?}");
    }
    assert_eq!(found[2].1.as_ref(), Ok(&cubin));
}

#[test]
fn bombs_are_refused_at_their_limit() {
    let mut big = bytes("vecadd.sm_80.cubin");
    big.resize(80 << 20, 0);
    let data = zip(&[("bomb.cubin", &big), ("zeros", &vec![0; 8 << 20])]);
    assert!(data.len() < 256 << 10);
    let mut errors = Vec::new();
    container::walk(&data, &Limits::default(), &mut |_, image| errors.push(image.err())).unwrap();
    let [Some(ContainerError::TooLarge(error))] = &errors[..] else { panic!("{errors:?}") };
    assert_eq!(error.limit, 64 << 20, "{error:?}");
    // A member that states less than it contains is not read further.
    let mut lies = data.clone();
    let stated = u32::try_from(big.len()).unwrap().to_le_bytes();
    while let Some(at) = lies.windows(4).position(|bytes| bytes == stated) {
        lies[at..at + 4].copy_from_slice(&(1_u32 << 16).to_le_bytes());
    }
    let mut errors = Vec::new();
    container::walk(&lies, &Limits::default(), &mut |_, image| errors.push(image.err())).unwrap();
    assert!(matches!(&errors[..], [Some(ContainerError::Zip { .. })]), "{errors:?}");
    // A file larger than the limit for any file is refused.
    let data = zip(&[("small.cubin", &big[..1 << 20])]);
    let limits = Limits { unpacked_bytes: 1 << 19, ..Limits::default() };
    let mut errors = Vec::new();
    container::walk(&data, &limits, &mut |_, image| errors.push(image.err())).unwrap();
    assert!(matches!(&errors[..], [Some(ContainerError::TooLarge(e))] if e.limit == 1 << 19));

    // An entry claims far more than its bytes can hold.
    for (file, entry_at) in [("size.fatbin", 16), ("speed.fatbin", 0)] {
        let mut data = bytes(file);
        let at = match entry_at {
            0 => fatbin::read(&data, 0).unwrap().entries[3].offset,
            at => at,
        };
        data[at + 56..at + 64].copy_from_slice(&u64::MAX.to_le_bytes());
        let fatbin = fatbin::read(&data, 0).unwrap();
        let entry = fatbin.entries.iter().find(|e| e.offset == at).unwrap();
        assert!(matches!(entry.unpack(u64::MAX), Err(FatbinError::TooLarge { .. })), "{file}");
    }
}

#[test]
fn a_broken_fatbin_does_not_hide_the_next_one() {
    let one = bytes("size.fatbin");
    let mut two = one.clone();
    two[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    two.resize(two.len().next_multiple_of(8), 0);
    two.extend(&one);
    let found: Vec<_> = fatbin::find(&two).collect();
    assert!(matches!(found[0], Err(FatbinError::Cut { .. })), "{:?}", found[0]);
    assert_eq!(found.last().unwrap().as_ref().unwrap().entries.len(), 4);
}

#[test]
fn damaged_containers_never_panic() {
    let names = ["size.fatbin", "speed.fatbin", "libtwo.a", "libvecadd.so"];
    for name in names.into_iter().chain(["vecadd-1.0-py3-none-any.whl"]) {
        let data = bytes(name);
        let limits = Limits { unpacked_bytes: 1 << 20, total_bytes: 1 << 22, members: 64 };
        let read = |bytes: &[u8]| {
            let _ = container::walk(bytes, &limits, &mut |place, image| {
                let _ = place.to_string();
                let _ = image.map(|image| image.bytes(&limits).map(|b| b.len()));
            });
        };
        damage::cut_everywhere(&data, read);
        damage::flip_bits(&data, 3_000, read);
    }
}

/// An object file of Windows with one section.
fn coff(section: &[u8; 8], content: &[u8]) -> Vec<u8> {
    let start = 20 + 40;
    let symbols = (start + content.len()) as u32;
    let mut file = vec![0x64, 0x86, 1, 0, 0, 0, 0, 0];
    file.extend(symbols.to_le_bytes());
    file.extend([0; 8]);
    file.extend(section_header(section, content.len(), start));
    file.extend(content);
    // No symbols, and a table of strings that has only its own length.
    file.extend(4u32.to_le_bytes());
    file
}

fn section_header(section: &[u8; 8], bytes: usize, at: usize) -> Vec<u8> {
    let mut header = section.to_vec();
    let numbers = [bytes as u32, 0x1000, bytes as u32, at as u32, 0, 0, 0, 0x4000_0040];
    header.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    header
}

/// A program of Windows with one section.
fn pe(section: &[u8; 8], content: &[u8]) -> Vec<u8> {
    let mut file = b"MZ".to_vec();
    file.resize(0x3c, 0);
    file.extend(0x40u32.to_le_bytes());
    file.extend(b"PE\0\0\x64\x86\x01\0");
    file.extend([0; 12]);
    file.extend(112u16.to_le_bytes());
    file.extend([0x22, 0]);
    let optional = file.len();
    file.extend(0x020bu16.to_le_bytes());
    file.resize(optional + 112, 0);
    file[optional + 32..optional + 36].copy_from_slice(&0x1000u32.to_le_bytes());
    file[optional + 36..optional + 40].copy_from_slice(&0x200u32.to_le_bytes());
    let start = 0x200;
    file.extend(section_header(section, content.len(), start));
    file.resize(start, 0);
    file.extend(content);
    file
}

#[test]
fn code_is_found_in_programs_and_objects_of_windows() {
    let fatbin = bytes("none.fatbin");
    for file in [coff(b".nv_fatb", &fatbin), pe(b".nv_fatb", &fatbin), coff(b"__nv_rel", &fatbin)] {
        assert_eq!(container::kind(&file[..400.min(file.len())]), Some(ContainerKind::Windows));
        let found = images(&file);
        assert_eq!(found.len(), 4, "{found:?}");
        assert_eq!(found[0].1, Ok(bytes("vecadd.sm_80.cubin")));
        let read = |file: &[u8]| {
            let _ = container::walk(file, &Limits::default(), &mut |_, _| {});
        };
        damage::cut_everywhere(&file, read);
        damage::flip_bits(&file[..0x240.min(file.len())], 500, read);
    }
    assert_eq!(images(&coff(b".text\0\0\0", &fatbin)), []);
}

#[test]
fn cubins_in_arrays_of_a_c_source_are_found() {
    let cubin = bytes("vecadd.sm_80.cubin");
    let mut padded = cubin.clone();
    padded.resize(cubin.len().next_multiple_of(8), 0);
    let narrow: Vec<String> = cubin.iter().map(|byte| format!("0x{byte:02x}")).collect();
    let wide: Vec<String> = padded
        .chunks_exact(8)
        .map(|word| format!("0x{:016x}ULL", u64::from_le_bytes(word.try_into().unwrap())))
        .collect();
    let declared = [("unsigned char", narrow), ("unsigned long long", wide)];
    for (kind, numbers) in declared {
        let text = format!(
            "// made\n#include <x>\nint small[] = {{1, 2}};\nextern const {kind} k_cubin[] = {{\n{}\n}};\n",
            numbers.join(",\n")
        );
        assert_eq!(container::kind(text.as_bytes()), Some(ContainerKind::CArray));
        let found = images(text.as_bytes());
        assert_eq!((found.len(), found[0].0.as_str()), (1, "k_cubin"));
        assert!(found[0].1.as_ref().unwrap().starts_with(&cubin));
    }
}

/// An ELF file for a CPU with these sections `.nv_fatbin` (offset in `content` and length).
fn host_elf(content: &[u8], sections: &[(usize, usize)]) -> Vec<u8> {
    let names = b"\0.nv_fatbin\0";
    let start = 64;
    let names_at = start + content.len();
    let headers_at = (names_at + names.len()).next_multiple_of(8);
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    file.extend([0; 16]);
    file.extend((headers_at as u64).to_le_bytes());
    let count = sections.len() as u16 + 2;
    for number in [0, 0, 64, 0, 0, 64, count, 1] {
        file.extend(number.to_le_bytes());
    }
    assert_eq!(file.len(), start);
    file.extend(content);
    file.extend(names);
    file.resize(headers_at + 64, 0);
    let mut header = |name: u32, kind: u32, at: usize, bytes: usize| {
        file.extend(name.to_le_bytes());
        file.extend(kind.to_le_bytes());
        file.extend([0; 16]);
        file.extend((at as u64).to_le_bytes());
        file.extend((bytes as u64).to_le_bytes());
        file.extend([0; 24]);
    };
    header(0, 3, names_at, names.len());
    for (at, bytes) in sections {
        header(1, 1, start + at, *bytes);
    }
    file
}

#[test]
fn bytes_that_several_sections_name_are_read_once() {
    let mut fatbin = bytes("none.fatbin");
    fatbin.resize(fatbin.len().next_multiple_of(8), 0);
    let length = fatbin.len();
    let two = [fatbin.clone(), fatbin].concat();
    let apart = images(&host_elf(&two, &[(length, length), (0, length), (0, 0)]));
    assert_eq!(apart.len(), 8, "{apart:?}");
    assert!(apart.iter().all(|(_, image)| image.is_ok()));
    let mut same = vec![(0, length); 2000];
    same.extend([(8, length), (length - 8, 16), (length, length)]);
    let found = images(&host_elf(&two, &same));
    let errors: Vec<&String> = found.iter().filter_map(|(_, i)| i.as_ref().err()).collect();
    assert_eq!(found.len() - errors.len(), 8);
    let told = "section 3 (`.nv_fatbin`) has bytes of a section before it and is not read";
    assert_eq!(errors, [told]);
}

#[test]
fn images_beyond_the_memory_of_a_file_are_left_out_with_one_error() {
    let mut entry = [0_u8; 64];
    entry[0] = 2;
    entry[4] = 64;
    let entries = entry.repeat(100_000);
    let mut fatbin = 0xba55_ed50_u32.to_le_bytes().to_vec();
    fatbin.extend([1, 0, 16, 0]);
    fatbin.extend((entries.len() as u64).to_le_bytes());
    fatbin.extend(entries);
    for file in [fatbin.clone(), zip(&[("a.fatbin", &fatbin), ("b.fatbin", &fatbin)])] {
        let (mut count, mut errors) = (0, Vec::new());
        container::walk(&file, &Limits::default(), &mut |_, image| match image {
            Ok(_) => count += 1,
            Err(error) => errors.push(error),
        })
        .unwrap();
        assert!((10_000..50_000).contains(&count), "{count}");
        let [ContainerError::TooManyImages { count: told, .. }] = &errors[..] else {
            panic!("{errors:?}")
        };
        assert_eq!(*told, count);
    }
}
