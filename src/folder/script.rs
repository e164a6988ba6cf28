use crate::plan::*;
pub fn mesh_up(_p: &Plan, _h: &HostPlan) -> String {
    String::new()
}
pub fn mesh_down(_p: &Plan, _h: &HostPlan) -> String {
    String::new()
}
