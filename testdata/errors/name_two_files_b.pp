// Used by name_two_files.pp.
fn both() { return 2; }
