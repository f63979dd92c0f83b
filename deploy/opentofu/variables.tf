variable "name" {
  description = "Name of the cluster: prefix of all names, and KROWL_CLUSTER."
  type        = string
  default     = "krowlspider"
}

variable "workers" {
  description = "Number of workers. Before you lower it, stop the crawl on the last ones: a node that is stopped hands its hosts over."
  type        = number
  default     = 3
}

variable "contact" {
  description = "KROWL_CONTACT: an address where site owners can reach you."
  type        = string
}

variable "seeds" {
  description = "URL of the file of seeds, the same for all workers."
  type        = string
}

variable "repository" {
  description = "URL of the git repository of the project, without credentials."
  type        = string
}

variable "release" {
  description = "Tag of the release to run."
  type        = string
}

variable "image" {
  description = "Name of an image of Debian 12."
  type        = string
  default     = "Debian 12"
}

variable "worker_flavor" {
  description = "Flavor of a worker. A node uses one core and at least 4 GB of memory; JOBDIR is on its disk."
  type        = string
}

variable "control_flavor" {
  description = "Flavor of the control node, with Consul and Prometheus."
  type        = string
}

variable "external_network" {
  description = "Name of the provider's public network."
  type        = string
}

variable "admin_cidr" {
  description = "Addresses from which SSH to the control node is allowed."
  type        = string

  validation {
    condition     = can(cidrhost(var.admin_cidr, 0)) && var.admin_cidr != "0.0.0.0/0"
    error_message = "Give the network of the administrators, such as 192.0.2.0/24."
  }
}

variable "public_key" {
  description = "SSH public key of the administrator."
  type        = string
}

variable "private_cidr" {
  description = "Addresses of the private network."
  type        = string
  default     = "10.77.0.0/24"
}
