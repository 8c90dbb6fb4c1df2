// Used by name_two_files.pp.
fn only_a() { return 1; }
fn both() { return 1; }
